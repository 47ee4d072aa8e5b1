from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from proctor.actors.errors import BadOption
from proctor.actors.replaying import find_recording, read_recording, replayed_by
from proctor.protocols.claude import CLAUDE
from proctor.protocols.vocabulary import HOST, ApprovalRequested
from tests.actors.far_end import played

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"


@pytest.mark.parametrize(
    ("name", "wire", "prompts", "oneshot"),
    [
        ("codex/app_approval_accept", "jsonrpc", ("go",), False),
        ("acp/gemini_permission_allow", "jsonrpc", ("go",), False),
        ("claude/b_stdin_prompt", "claude", None, True),
        ("claude/e_session", "claude", None, False),
    ],
)
def test_a_recording_tells_its_wire_and_its_prompts(
    name: str, wire: str, prompts: tuple[str, ...] | None, oneshot: bool
) -> None:
    recorded = read_recording(TRANSCRIPTS / name)
    assert (recorded.wire, recorded.oneshot) == (wire, oneshot)
    assert recorded.prompts == prompts if prompts else recorded.prompts


async def test_a_question_is_answered_as_it_was() -> None:
    recorded = read_recording(TRANSCRIPTS / "claude" / "e_session")
    assert sorted(recorded.allowed.values()) == [False, True]
    for id, allow in recorded.allowed.items():
        question = ApprovalRequested(HOST, None, id, "Bash", {})
        assert (await recorded.verdict(question)).allow is allow
    assert not (await recorded.verdict(ApprovalRequested(HOST, None, "new", "Bash", {}))).allow


def test_the_newest_incarnation_is_that_with_the_highest_number(tmp_path: Path) -> None:
    for name in ("1", "9", "10", "11", "tmp"):
        (tmp_path / name).mkdir()
    for name in ("1", "9", "10"):
        (tmp_path / name / "stdout.ndjson").touch()
    assert find_recording(tmp_path) == f"{tmp_path}/10/"
    assert find_recording(tmp_path / "9") == f"{tmp_path}/9/"
    with pytest.raises(BadOption, match="is no recording"):
        find_recording(tmp_path / "11")


async def test_a_dialect_speaks_with_the_player_of_its_recording(tmp_path: Path) -> None:
    lines = {
        "stdin": [
            {"method": "initialize", "id": 1},
            {"method": "turn/start", "id": 2, "params": {"input": [{"text": "hi"}]}},
        ],
        "stdout": [{"id": 1, "result": {}}],
    }
    for name, frames in lines.items():
        (tmp_path / f"{name}.ndjson").write_text("".join(f"{json.dumps(frame)}\n" for frame in frames))
    recorded = read_recording(tmp_path)
    assert recorded.prompts == ("hi",)
    # the greeting of Claude's wire is a request to nobody here: what the player says to it is all that counts
    dialect = attrs.evolve(CLAUDE, greet=lambda memo: b'{"method": "initialize", "id": "mine"}\n')
    plan = replayed_by(dialect, recorded, {"greeting": 2.0})
    with pytest.raises(Exception, match="did not answer the greeting"):
        await played(plan)
