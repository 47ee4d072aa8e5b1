from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from proctor.actors.errors import BadOption, GreetingTimeout
from proctor.actors.replay import find_recording, read_recording, replayed_by
from proctor.protocols.claude import CLAUDE
from proctor.protocols.dialect import Memo
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
    with pytest.raises(BadOption, match="is not a recording"):
        find_recording(tmp_path / "11")


def greeting(memo: Memo) -> bytes:
    """Of another wire than this dialect reads: what is shown is that the player hears it and answers."""
    return b'{"method": "initialize", "id": "mine"}\n'


async def test_a_dialect_speaks_with_the_player_of_its_recording(tmp_path: Path) -> None:
    prompt = {"method": "turn/start", "id": 2, "params": {"input": [{"text": "hi"}]}}
    asked = [json.dumps({"method": "initialize", "id": 1}), json.dumps(prompt)]
    (tmp_path / "stdin.ndjson").write_text("\n".join(asked))
    (tmp_path / "stdout.ndjson").write_text('{"id": 1, "result": {}}\n')
    recorded = read_recording(tmp_path)
    assert recorded.prompts == ("hi",)
    plan = replayed_by(
        attrs.evolve(CLAUDE, greet=greeting), recorded, {"greeting": 1.0, "record": tmp_path / "r"}
    )
    with pytest.raises(GreetingTimeout):
        await played(plan)
    [said] = (tmp_path / "r").glob("*/1/stdout.ndjson")
    assert json.loads(said.read_text()) == {"id": "mine", "result": {}}
