from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proctor.actors.agent.request import Request
from proctor.actors.runs import ask, open_run
from proctor.actors.specs import agent_spec, open_supervisor
from tests.actors.spoken import spoken_plan

SESSION = "11111111-2222-3333-4444-555555555555"


def flags(record: Path) -> set[str]:
    [meta] = record.glob("*/1/meta.json")
    return {flag.partition("=")[0] for flag in json.loads(meta.read_text())["argv"]}


@pytest.mark.covers("L08")
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, False),
        ({"persist": False}, False),
        ({"persist": True}, True),
        ({"resume": SESSION}, True),
        ({"session_id": SESSION}, True),
    ],
    ids=["by default", "not to be kept", "to be kept", "resumed", "named"],
)
async def test_a_run_that_nobody_goes_on_with_keeps_no_session(
    options: Any, kept: bool, tmp_path: Path, autojump_clock: MockClock
) -> None:
    assert (await ask(spoken_plan(record=tmp_path, **options), "hi")).ok
    assert ("--no-session-persistence" not in flags(tmp_path)) == kept


@pytest.mark.covers("L08")
async def test_an_agent_that_is_held_keeps_its_session_for_its_next_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_supervisor([agent_spec("agent", spoken_plan(record=tmp_path), {})]) as tree:
        assert (await tree.agent("agent").ask("hi")).ok
    assert "--no-session-persistence" not in flags(tmp_path)


async def test_a_run_waits_for_its_prompt_and_its_deadline_counts_from_there(
    autojump_clock: MockClock,
) -> None:
    async with open_run(spoken_plan()) as live:
        await trio.sleep(1000)
        assert live.is_fit()
        live.begin(Request.make("hi", timeout=10.0))
        assert not live.is_fit()  # it has its prompt
        assert await live.taken()
        assert (await live.finish()).text == "1: hi"


async def test_a_run_has_one_prompt(autojump_clock: MockClock) -> None:
    async with open_run(spoken_plan()) as live:
        live.begin(Request.make("hi"))
        with pytest.raises(RuntimeError, match="has its prompt; another one needs another run"):
            live.begin(Request.make("again"))


async def test_a_run_that_nobody_asks_goes_down_its_ladder(autojump_clock: MockClock) -> None:
    async with open_run(spoken_plan()) as live:
        await live.ready.wait()
        await wait_all_tasks_blocked()
    assert (live.over.is_set(), live.incarnation.stopper, await live.taken()) == (True, "owner", False)
