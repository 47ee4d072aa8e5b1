"""What a turn had used when its process died in its midst, as far as the command line had reported it by then."""

from __future__ import annotations

from types import ModuleType

import pytest

from proctor.protocols.acp import GENERIC
from proctor.protocols.vocabulary import TurnEnded, Usage
from tests.protocols.acp import player as acp
from tests.protocols.acp.lines import chunk, reply, session, update
from tests.protocols.claude import player as claude
from tests.protocols.codex.lines import ended, said
from tests.protocols.codex.test_session import Session as Codex
from tests.protocols.opencode import player as opencode
from tests.protocols.recorded import whole


@pytest.mark.parametrize(
    ("player", "name", "used"),
    [
        (claude, "l_sigkill_bash", (Usage(10, 1, 0, 0), None)),
        (claude, "l_sigterm_bash@2.1.197", (Usage(10, 1, 0, 0), None)),
        (opencode, "run_external_dir", (Usage(100, 20, 0, 0), 0.0)),
    ],
)
def test_a_recording_that_ends_in_mid_turn_has_what_its_turn_had_used(
    player: ModuleType, name: str, used: tuple[Usage, float | None]
) -> None:
    talk, _ = player.play(name)
    assert talk.memo.open_turns
    assert talk.used() == used


def test_codex_has_the_tokens_of_the_calls_of_its_model_that_have_ended() -> None:
    codex = Codex()
    codex.begin()
    tokens = {"inputTokens": 7, "outputTokens": 2, "cachedInputTokens": 1}
    usage = said("thread/tokenUsage/updated", turnId="T1", tokenUsage={"last": tokens})
    codex.hear(usage, usage)
    assert codex.talk.used() == (Usage(14, 4, 2, 0), None)
    codex.hear(ended())
    assert codex.talk.used() == (None, None)


@pytest.mark.parametrize(("player", "name"), [(claude, "a_json"), (acp, "claude-acp_text")])
def test_between_two_turns_nothing_is_used(player: ModuleType, name: str) -> None:
    talk, events = player.play(name, whole)
    assert any(isinstance(event, TurnEnded) for event in events)
    assert talk.used() == (None, None)


def test_an_acp_agent_has_the_rise_of_its_sessions_cost() -> None:
    talk = session(GENERIC, "p")
    talk.receive(chunk("a") + update("usage_update", cost={"amount": 0.25, "currency": "USD"}))
    assert talk.used() == (None, 0.25)
    talk.receive(reply(3, stopReason="end_turn"))
    assert talk.used() == (None, None)
