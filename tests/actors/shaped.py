"""Far ends that answer in a shape, or fail to: Claude Code's wire, spoken by a function in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import attrs
import trio

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.transport.memory import Lines, PeerStreams, in_memory
from proctor.protocols.dialect import Dialect
from tests.protocols.lines import INIT, ended, line, reply

Step = Mapping[str, Any]
"""One of: `submit`, `validate` or `example` with the arguments of a call; `say` a text that ends the turn; `shape` data
that the CLI itself has checked, and ends it; `end` a subtype of a result that is an error; `die` an exit status; `rest` seconds; `wait` for ever."""


@attrs.define
class Talk:
    """What was said to far ends that play one after the other: `prompts` and the results of calls, in order, and the
    arguments of each process. `turns` are played one for each prompt, whatever process it is said to."""

    turns: list[Sequence[Step]]
    prompts: list[str] = attrs.field(factory=list[str])
    results: list[str] = attrs.field(factory=list[str])
    tools: list[list[str]] = attrs.field(factory=list[list[str]])


@attrs.define
class _Speaker:
    side: PeerStreams
    talk: Talk
    lines: Lines
    calls: int = 0

    async def live(self) -> int | None:
        async for said in self.lines:
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await self._control(frame)
            elif frame["type"] == "user":
                status = await self._turn(frame["message"]["content"])
                if status is not None:
                    return status
        return None

    async def _control(self, frame: dict[str, Any]) -> None:
        await self.side.send_all(reply(frame["request_id"], pid=1))
        if frame["request"]["subtype"] == "initialize" and frame["request"].get("sdkMcpServers"):
            listed = await self._ask("tools/list", {})
            self.talk.tools.append([tool["name"] for tool in listed["tools"]])
        elif frame["request"]["subtype"] == "interrupt":
            await self._end(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")

    async def _turn(self, prompt: str) -> int | None:
        self.talk.prompts.append(prompt)
        await self.side.send_all(INIT)
        for step in self.talk.turns.pop(0):
            [(kind, what)] = step.items()
            match kind:
                case "say":
                    await self._end(subtype="success", is_error=False, result=what)
                case "shape":
                    await self._end(
                        subtype="success", is_error=False, result=json.dumps(what), structured_output=what
                    )
                case "end":
                    await self._end(subtype=what, is_error=True, errors=["it went wrong"])
                case "rest":
                    await trio.sleep(what)
                case "wait":
                    return None
                case "die":
                    return int(what)
                case _:
                    result = await self._ask("tools/call", {"name": kind, "arguments": what})
                    self.talk.results.append(result["content"][0]["text"])
        return None

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        message = {"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}
        request = {"subtype": "mcp_message", "server_name": "host", "message": message}
        await self.side.send_all(line(type="control_request", request_id=f"c{self.calls}", request=request))
        async for said in self.lines:
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_response":
                answer: dict[str, Any] = frame["response"]["response"]["mcp_response"]["result"]
                return answer
        raise trio.EndOfChannel

    async def _end(self, **facts: Any) -> None:
        end = ended(num_turns=2, duration_ms=500, total_cost_usd=self._cost(), **facts)
        await self.side.send_all(end)

    def _cost(self) -> float:
        return 0.25 * len(self.talk.prompts)


async def _plays(talk: Talk, side: PeerStreams) -> int | None:
    return await _Speaker(side, talk, side.lines()).live()


def shaped_plan(
    *turns: Sequence[Step], lacking: Sequence[str] = (), **options: Unpack[AgentOptions]
) -> tuple[Plan, Talk]:
    """An agent that plays these turns, without the capabilities that it is `lacking`; and what is said to it."""
    talk = Talk([*turns])
    chosen: AgentOptions = {"home": "private", "silence": 20.0, "final": 0.5, **options}
    plan = claude_plan("agent", chosen, shutdown=5.0)
    reach = in_memory(partial(_plays, talk), name="shaped")
    return attrs.evolve(plan, product=None, reach=reach, dialect=_without(plan.dialect, lacking)), talk


def _without(dialect: Dialect, lacking: Sequence[str]) -> Dialect:
    kept = {word: first for word, first in dialect.capabilities.items() if word not in lacking}
    return attrs.evolve(dialect, capabilities=kept)
