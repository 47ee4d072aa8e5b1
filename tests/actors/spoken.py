"""Claude Code's wire spoken by a function: far ends of agents that need no process."""

from __future__ import annotations

import json
from typing import Any, Unpack

import attrs
import trio

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import Peer, PeerStreams, in_memory
from proctor.runtime.spec import ChildSpec
from tests.protocols.lines import INIT, assistant, ended, line, reply, text

COUNTED = {"input_tokens": 3, "output_tokens": 5}
GOOD: dict[str, Any] = {"subtype": "success", "is_error": False, "result": "It is 4."}
CUT: dict[str, Any] = {
    "subtype": "error_during_execution",
    "is_error": True,
    "terminal_reason": "aborted_streaming",
}


class Speaker:
    """Answers each prompt with `turn: prompt`, but `crash` with its end, and `hang` and `wait` not at all."""

    def __init__(self, side: PeerStreams) -> None:
        self._side = side
        self._turns = 0
        self._open = False

    async def live(self) -> int | None:
        """Its whole life."""
        async for said in self._side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await self._control(frame["request_id"], frame["request"]["subtype"])
            elif (status := await self._prompt(frame["message"]["content"])) is not None:
                return status
        return None

    async def _control(self, request: str, subtype: str) -> None:
        await self._side.send_all(reply(request, pid=1))
        if subtype == "interrupt" and self._open:
            await self._end(**CUT)

    async def _prompt(self, text: str) -> int | None:
        self._turns += 1
        self._open = True
        await self._side.send_all(INIT)
        if text == "crash":
            self._side.complain(b"out of luck\n")
            return 3
        if text not in ("hang", "wait"):
            await self._end(subtype="success", is_error=False, result=f"{self._turns}: {text}")
        return None

    async def _end(self, **facts: Any) -> None:
        self._open = False
        await self._side.send_all(ended(total_cost_usd=0.5, **facts))


async def speaks(side: PeerStreams) -> int | None:
    return await Speaker(side).live()


def saying(*frames: bytes, status: int | None = None, heard: list[Any] | None = None, **result: Any) -> Peer:
    """A far end that tells these frames for every prompt, then the result if there is one; without one it hangs, but for `status`.

    What it is sent as prompts is added to `heard`.
    """

    async def live(side: PeerStreams) -> int | None:
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
                if frame["request"]["subtype"] == "end_session":
                    return None
                if frame["request"]["subtype"] == "interrupt":
                    await side.send_all(ended(**CUT))
                continue
            if heard is not None:
                heard.append(frame["message"]["content"])
            for out in (INIT, *frames):
                await side.send_all(out)
            if result:
                await side.send_all(ended(**{"usage": COUNTED, **result}))
            if status is not None:
                side.complain(b"the last words\n")
                return status
        return None

    return live


async def deaf(side: PeerStreams) -> int | None:
    """A far end that answers nothing."""
    await trio.sleep_forever()
    return None


async def unwanted(side: PeerStreams) -> int | None:
    """A far end that is not to be started."""
    raise AssertionError("it was started")


TALK = saying(
    assistant(text("Let me see."), {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}}),
    line(
        type="user",
        message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "4"}]},
    ),
    assistant(text("")),
    assistant(text("It is 4.")),
    **GOOD,
)


def spoken_plan(far_end: Peer = speaks, **options: Unpack[AgentOptions]) -> Plan:
    """An agent whose far end is a function."""
    chosen: AgentOptions = {"home": "private", "silence": 20.0, "final": 0.5, **options}
    return attrs.evolve(
        claude_plan("agent", chosen, shutdown=5.0), product=None, reach=in_memory(far_end, name="speaker")
    )


def spec_of(far_end: Peer, **options: Unpack[AgentOptions]) -> ChildSpec:
    """Its child of a tree."""
    return agent_spec("agent", spoken_plan(far_end, **options), {})
