"""When a usage limit ends, as command lines say it: what is believed, what is not, how it is shown."""

from __future__ import annotations

import math
import time

import attrs
import pytest
from trio.testing import MockClock

import proctor
from proctor.actors.limits.admission import MAX_RESET_AHEAD, Delay, seconds_to_reset
from proctor.actors.outcomes import Answer
from proctor.actors.serving.retry import judge
from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.limits import reset_time
from proctor.protocols.vocabulary import LimitReached, Notice
from proctor.runtime.spec import ChildSpec
from tests.actors.spoken import saying, spec_of
from tests.protocols.lines import line
from tests.tables import each_row

NOW = 1_795_000_000.0
DAY = 86400.0
IMPOSSIBLE = (1e18, -5.0, 0.0, math.nan, math.inf, -math.inf, 1e17)


@pytest.mark.parametrize("given", IMPOSSIBLE)
def test_a_time_that_cannot_be_is_as_none(given: float) -> None:
    assert reset_time(given) is None


@pytest.mark.parametrize(
    ("given", "moment"), [(NOW, NOW), (NOW * 1000, NOW), (NOW * 1000 + 250, NOW + 0.25), (None, None)]
)
def test_a_time_in_milliseconds_is_known_as_such(given: float | None, moment: float | None) -> None:
    assert reset_time(given) == moment


@each_row(
    ("ahead", "seconds"),
    [
        (100.0, 100.0),
        (MAX_RESET_AHEAD, MAX_RESET_AHEAD),
        (MAX_RESET_AHEAD + 1, None),
        (0.0, 0.0),
        (-30.0, 0.0),  # the CLI's last word may have been on its way for a while
        (-3600.0, None),
        (-NOW, None),
    ],
)
def test_a_reset_is_waited_for_from_now_until_thirty_days_ahead(ahead: float, seconds: float | None) -> None:
    assert seconds_to_reset(NOW + ahead, NOW) == seconds


def limited_until(resets_at: object) -> ChildSpec:
    info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    rejected = line(type="rate_limit_event", rate_limit_info=info)
    return spec_of(
        saying(rejected, subtype="success", is_error=True, terminal_reason="api_error", result="Limit")
    )


@pytest.mark.parametrize("ahead", [1e18, -1e10, 40 * DAY, -DAY], ids=["1e18", "negative", "far", "past"])
async def test_a_limit_until_a_time_that_is_not_believed_is_answered_and_its_agent_lives(
    ahead: float, autojump_clock: MockClock
) -> None:
    async with proctor.open_supervisor([limited_until(time.time() + ahead)], intensity=0) as sup:
        agent = sup.agent("agent")
        answers = [await agent.ask("hi"), await agent.ask("hi")]
    assert [answer.outcome for answer in answers] == ["limited", "limited"]


async def test_a_limit_in_milliseconds_parks_until_its_second(autojump_clock: MockClock) -> None:
    resets_at = time.time() + 3600
    async with proctor.open_supervisor([limited_until(round(resets_at * 1000))], intensity=0) as sup:
        receipt = await sup.agent("agent").queue("hi")
        async with sup.agent("agent").events(since=0) as events:
            async for event in events:
                if isinstance(event, Notice) and event.code == "parked":
                    break
        status = await sup.agent("agent").status()
    assert receipt.fate == "queued"
    assert status.state == "parked"
    assert status.until == pytest.approx(resets_at, abs=5)


@pytest.mark.parametrize("given", IMPOSSIBLE[:3])
def test_no_reset_that_cannot_be_reaches_an_event_of_claude(given: float) -> None:
    conversation = Conversation(CLAUDE, launch=Launch(executable=()))
    info = {"status": "rejected", "resetsAt": given}
    events = conversation.receive(line(type="rate_limit_event", rate_limit_info=info))
    assert [event.resets_at for event in events if isinstance(event, LimitReached)] == [None]


def test_a_run_is_not_repeated_after_a_limit_whose_end_is_not_believed() -> None:
    far = Answer(agent="a", outcome="limited", resets_at=time.time() + 400 * DAY)
    assert judge(far) is None
    near = judge(attrs.evolve(far, resets_at=time.time() + 400))
    assert near is not None


def test_a_hold_of_more_than_a_day_is_shown_with_its_date() -> None:
    soon, late = Delay("usage limit", 60.0, 0), Delay("usage limit", 2 * DAY, 0)
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() + 2 * DAY))
    assert day not in soon.text
    assert f"until {day} " in late.text
