"""Claude Code's wire spoken by a function: far ends of agents that need no process."""

from __future__ import annotations

import json
from typing import Any, Unpack

import attrs

from proctor.actors.plan import AgentOptions, Plan, claude_plan
from proctor.actors.played import FarEnd, FarSide, played
from tests.protocols.lines import INIT, line


class Speaker:
    """Answers each prompt with `turn: prompt`, but `crash` with its end, and `hang` and `wait` not at all."""

    def __init__(self, side: FarSide) -> None:
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
        reply = {"subtype": "success", "request_id": request, "response": {"pid": 1}}
        await self._side.send_all(line(type="control_response", response=reply))
        if subtype == "interrupt" and self._open:
            await self._end(
                subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"
            )

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
        await self._side.send_all(
            line(type="result", session_id="s", num_turns=1, total_cost_usd=0.5, **facts)
        )


async def speaks(side: FarSide) -> int | None:
    return await Speaker(side).live()


def spoken_plan(far_end: FarEnd = speaks, **options: Unpack[AgentOptions]) -> Plan:
    """An agent whose far end is a function."""
    chosen: AgentOptions = {"home": "private", "silence": 20.0, "final": 0.5, **options}
    return attrs.evolve(
        claude_plan("agent", chosen, shutdown=5.0), product=None, reach=played(far_end, name="speaker")
    )
