"""What the page talks to: a fleet whose agents are functions, and a server that changes faster than any fleet."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proctor.actors.gateways.http.page_files import page_routes
from proctor.actors.transport.memory import PeerStreams
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve
from tests.actors.gateways.http.serving import Served, served
from tests.actors.gateways.http.test_history import at_home
from tests.actors.spoken import CUT
from tests.protocols.lines import INIT, assistant, delta, ended, line, reply, text

EDIT = {"file_path": "notes.md", "old_string": "half\n", "new_string": "whole\n"}
COLOURS = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Paint",
            "options": [{"label": "red", "description": "as a fire"}, {"label": "blue", "description": ""}],
        }
    ]
}
HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
TOOLS = (
    assistant({"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make test"}}),
    line(
        type="user",
        message={"content": [{"type": "tool_result", "tool_use_id": "c1", "content": "12 passed"}]},
    ),
    assistant({"type": "tool_use", "id": "c2", "name": "Edit", "input": EDIT}),
    assistant(text(HOSTILE)),
)


class Agent:
    """Does what its prompt says: `edit` and `choose` ask first, `stream` writes what `say` gives it, `tools` uses some, `crash` ends it."""

    def __init__(self) -> None:
        self.say, self._texts = trio.open_memory_channel[str](100)
        self.answers: list[dict[str, Any]] = []
        self._asked = 0

    async def live(self, side: PeerStreams) -> int | None:
        """Its whole life."""
        async with trio.open_nursery() as nursery:
            async for received in side.lines():
                frame: dict[str, Any] = json.loads(received)
                match frame["type"]:
                    case "control_request":
                        await side.send_all(reply(frame["request_id"], pid=1))
                        if frame["request"]["subtype"] == "interrupt":
                            await side.send_all(ended(**CUT))
                    case "control_response":
                        self.answers.append(frame["response"]["response"])
                        await self._end(side, json.dumps(self.answers[-1], sort_keys=True))
                    case _:
                        prompt = frame["message"]["content"]
                        if prompt == "crash":
                            side.complain(b"out of luck\n")
                            nursery.cancel_scope.cancel()
                            return 3
                        nursery.start_soon(self._turn, side, prompt)
            nursery.cancel_scope.cancel()
        return None

    async def _turn(self, side: PeerStreams, prompt: str) -> None:
        await side.send_all(INIT)
        match prompt:
            case "edit":
                await self._ask(side, "Edit", EDIT)
            case "choose":
                await self._ask(side, "AskUserQuestion", COLOURS)
            case "stream":
                whole = ""
                async for part in self._texts:
                    if not part:
                        break
                    whole += part
                    await side.send_all(delta(part))
                await side.send_all(assistant(text(whole)))
                await self._end(side, whole)
            case "hang":
                pass
            case "tools":
                await side.send_all(b"".join(TOOLS))
                await self._end(side, HOSTILE)
            case _:
                await side.send_all(assistant(text(f"You asked: {prompt}")))
                await self._end(side, prompt)

    async def _ask(self, side: PeerStreams, tool: str, taken: dict[str, Any]) -> None:
        self._asked += 1
        request = {"subtype": "can_use_tool", "tool_name": tool, "input": taken, "tool_use_id": "t"}
        await side.send_all(line(type="control_request", request_id=f"q {self._asked}", request=request))

    async def _end(self, side: PeerStreams, result: str) -> None:
        await side.send_all(ended(subtype="success", is_error=False, result=result, total_cost_usd=0.5))


@asynccontextmanager
async def fleet(
    agents: dict[str, Agent], record: Path | None = None, **options: Any
) -> AsyncGenerator[Served]:
    """A fleet of these agents, served; its runs are recorded in `record`."""
    own: dict[str, Any] = {"permission": "ask"} if record is None else {"permission": "ask", "record": record}
    specs = [at_home(name, far_end=agent.live, **own) for name, agent in agents.items()]
    async with served(*specs, seconds=3600.0, intensity=1000, **options) as server:
        yield server


# -- a server that changes faster than any fleet


def record(number: int, changes: int) -> dict[str, Any]:
    """One of its agents, after so many changes."""
    state = ("working", "idle", "parked", "failed")[number % 4]
    return {
        "name": f"agent-{number:03}",
        "state": state,
        "evidence": f"round {changes}",
        "unresponsive": "",
        "pid": number + 1,
        "incarnation": 1,
        "queued": 0,
        "turns": changes,
        "cost_usd": 0.001 * changes,
        "path": f"f/agent-{number:03}",
        "since": 1.0,
        "restarts": 0,
        "approvals": 0,
        "tokens": changes * 10,
    }


class Storm:
    """500 agents, each of which changes at each call of `blow`, as fast as the page takes it."""

    def __init__(self, size: int = 500) -> None:
        self._size = size
        self._rounds = trio.Event()
        self._count = 0

    def blow(self, rounds: int) -> None:
        """Send so many changes of each agent."""
        self._count = rounds
        self._rounds.set()

    async def _fleet(self, request: Request) -> Response:
        agents = [record(number, 0) for number in range(self._size)]
        return JSONResponse(
            {
                "fleet": "storm",
                "pid": 1,
                "since": "2026-01-01T00:00:00+00:00",
                "sequence": 1,
                "agents": agents,
            }
        )

    async def _changes(self, request: Request) -> Response:
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        yield ": changes\n\n"
        await self._rounds.wait()
        for changes in range(1, self._count + 1):
            records = (json.dumps(record(number, changes)) for number in range(self._size))
            yield "".join(f"id: {changes + 1}\nevent: agent\ndata: {each}\n\n" for each in records)
        await trio.sleep_forever()

    async def _none(self, request: Request) -> Response:
        return JSONResponse({"approvals": []})

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[str]:
        """Serve it; gives its address."""
        routes = [
            Route("/fleet", self._fleet),
            Route("/fleet/changes", self._changes),
            Route("/approvals", self._none),
            *page_routes(),
        ]
        application: Any = Starlette(routes=routes)
        with bound(Endpoint()) as opened:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve, application, opened, shutdown=trio.Event()))
                yield f"http://{endpoint_of(opened)}"
                nursery.cancel_scope.cancel()
