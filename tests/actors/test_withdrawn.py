from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.agent.messages import Submit
from proctor.actors.agent.request import Request
from tests.actors.spoken import speaks, spec_of


async def test_requests_whose_callers_timed_out_leave_the_queue_at_once(autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor([spec_of(speaks, silence=1000.0)]) as sup:
        agent = sup.agent("agent")
        late = list[str]()

        async def ask(prompt: str) -> None:
            try:
                await agent.ask(prompt, timeout=1)
            except proctor.AskTimeout:
                late.append(prompt)

        async with agent.stream("hang"):
            for begun in range(0, 1200, 600):
                async with trio.open_nursery() as nursery:
                    for number in range(begun, begun + 600):
                        nursery.start_soon(ask, f"{number}")
            assert len(late) == 1200
            assert (await agent.status()).queued == 0
        assert (await agent.ask("next", timeout=10)).text == "2: next"


async def test_a_request_whose_caller_left_before_it_was_taken_is_not_queued(
    autojump_clock: MockClock,
) -> None:
    async with proctor.open_supervisor([spec_of(speaks)]) as sup:
        agent = sup.agent("agent")
        async with agent.stream("hang"):
            with pytest.raises(proctor.AskTimeout):
                await agent.ask("not sent", timeout=1)
            job = Request("ticket", "left before it was taken", withdrawn=True)
            await sup.name("agent").call(Submit(job))
            assert (await agent.status()).queued == 0
