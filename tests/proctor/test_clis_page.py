from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.protocols.acp import PROFILES, acp_dialect
from proctor.protocols.claude import CLAUDE
from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.dialect import Dialect
from proctor.protocols.opencode import OPENCODE, OPENCODE_RUN
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE
from tests.tables import each_row

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "capabilities.md"
COLUMNS: Mapping[str, Dialect] = {
    "claude": CLAUDE,
    "codex": CODEX,
    "codex exec": CODEX_EXEC,
    "opencode": OPENCODE,
    "opencode run": OPENCODE_RUN,
    "opencode serve": OPENCODE_SERVE,
    "gemini": acp_dialect(PROFILES["gemini"]),
    "codex-acp": acp_dialect(PROFILES["codex"]),
    "claude-agent-acp": acp_dialect(PROFILES["claude"]),
    "any ACP agent": acp_dialect(PROFILES["generic"]),
}
INNER = {
    "blocking_hooks",
    "permission_modes_checked",
    "client_composed",
    "prompt_lifecycle",
    "startup_failure_results",
    "system_prompt_snapshot",
}
"""What a dialect asks of itself; nobody else has a use for it."""


def cell(dialect: Dialect, word: str) -> str:
    first = dialect.capabilities.get(word)
    if first is None:
        return "\N{EN DASH}"
    return "yes" if first <= dialect.oldest else ".".join(map(str, first))


def rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[one.strip().strip("`") for one in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells if not row[0].startswith("---")}


def test_the_page_has_every_dialect_in_its_table() -> None:
    assert rows()[""] == [*COLUMNS]


@pytest.mark.covers("L40", "L04")
@each_row("place", range(len(COLUMNS)), ids=list(COLUMNS))
def test_the_page_says_what_a_dialect_can_do(place: int) -> None:
    dialect = [*COLUMNS.values()][place]
    told = {word: cells[place] for word, cells in rows().items() if word}
    outer = {word for word in dialect.capabilities if word not in INNER}
    assert told == {word: cell(dialect, word) for word in told}
    assert outer <= told.keys()
