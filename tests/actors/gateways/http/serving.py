"""A gateway over agents whose far ends are functions, served on a real loopback socket."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Unpack

import attrs
import h11
import httpx2
import msgspec
import trio

import proctor
from proctor.actors.agent.handle import Agent
from proctor.actors.gateways.http import AuthMiddleware, Gateway, Hooks, Lifecycle, application, open_gateway
from proctor.actors.plan.options import AgentOptions
from proctor.actors.specs import Supervisor, agent_spec
from proctor.actors.store.backend import StoreBackend
from proctor.actors.transport.memory import Peer
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve
from proctor.runtime.spec import ChildSpec
from tests.actors.spoken import speaks, spoken_plan


@attrs.frozen
class Frame:
    """One server-sent event; `id` is None where it had none."""

    event: str
    data: Any
    id: int | None = None


class Stream:
    """The server-sent events of one connection; `comments` are told, too."""

    def __init__(self, connection: trio.SocketStream) -> None:
        self.connection = connection
        self.comments: list[str] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self._http = h11.Connection(h11.CLIENT)
        self._text = ""
        self._ready: deque[Frame] = deque()

    async def ask(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> None:
        data = b"" if body is None else msgspec.json.encode(body)
        own = {"host": "localhost", "accept": "text/event-stream", "content-length": str(len(data))}
        if body is not None:
            own["content-type"] = "application/json"
        request = h11.Request(method=method, target=path, headers=[*({**own, **headers}).items()])
        parts = (
            self._http.send(request),
            self._http.send(h11.Data(data)),
            self._http.send(h11.EndOfMessage()),
        )
        await self.connection.send_all(b"".join(part or b"" for part in parts))
        response = await self._event()
        assert isinstance(response, h11.Response)
        self.status = response.status_code
        self.headers = {name.decode(): value.decode() for name, value in response.headers}

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self.connection.receive_some())
        return event

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Frame:
        while not self._ready:
            match await self._event():
                case h11.Data(data=data):
                    *blocks, self._text = (self._text + bytes(data).decode()).split("\n\n")
                    self._ready.extend(frame for block in blocks for frame in self._frames(block))
                case h11.EndOfMessage():
                    raise StopAsyncIteration
                case other:
                    raise AssertionError(f"the stream was cut: {other!r}")
        return self._ready.popleft()

    def _frames(self, block: str) -> Iterator[Frame]:
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "" in fields:
            self.comments.append(fields[""])
            return
        id = int(fields["id"]) if "id" in fields else None
        yield Frame(fields["event"], msgspec.json.decode(fields["data"]), id)


@attrs.frozen
class Served:
    gateway: Gateway
    sup: Supervisor
    client: httpx2.AsyncClient
    where: Endpoint
    told: list[tuple[str, Mapping[str, Any]]]
    telling: trio.lowlevel.ParkingLot

    async def until_told(self, count: int) -> None:
        """Wait for so many notes of the gateway."""
        while len(self.told) < count:
            await self.telling.park()

    async def until_running(self, agent: str = "a") -> None:
        """Wait until a turn runs."""
        async with self.sup.agent(agent).events(since=0) as events:
            async for event in events:
                if isinstance(event, proctor.TurnStarted):
                    return

    @asynccontextmanager
    async def follow(
        self, path: str, *, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Stream]:
        """A connection of its own, closed at the end of the block."""
        async with await trio.open_tcp_stream(self.where.host, self.where.port) as connection:
            stream = Stream(connection)
            await stream.ask(method, path, body, headers or {})
            yield stream

    async def read(self, path: str, **options: Any) -> list[Frame]:
        async with self.follow(path, **options) as found:
            return [frame async for frame in found]

    async def ask(self, prompt: str, agent: str = "a", **more: Any) -> httpx2.Response:
        return await self.client.post(f"/agents/{agent}/turns", json={"prompt": prompt, **more})


def spoken(id: str = "a", far_end: Peer = speaks, **options: Unpack[AgentOptions]) -> ChildSpec:
    plan = attrs.evolve(spoken_plan(far_end, **options), name=id, shutdown=0.2)
    return agent_spec(id, plan, {"shutdown": 5.0})


@asynccontextmanager
async def served(
    *specs: ChildSpec,
    hooks: Mapping[str, Any] | None = None,
    heartbeat: float = 15.0,
    limit: int = 8 << 20,
    seconds: float = 30.0,
    entrance: Mapping[str, Any] | None = None,
    budget: proctor.Budget | None = None,
    intensity: int = 1,
    store: StoreBackend | None = None,
    where: Endpoint = Endpoint(),  # noqa: B008  # a frozen record
    **serving: Any,
) -> AsyncGenerator[Served]:
    told: list[tuple[str, Mapping[str, Any]]] = []
    telling = trio.lowlevel.ParkingLot()

    def tell(what: str, facts: Mapping[str, Any]) -> None:
        told.append((what, facts))
        telling.unpark_all()

    with trio.fail_after(seconds), bound(where) as opened:
        flags: Any = {"budget": budget, "intensity": intensity, "store": store}
        async with proctor.open_supervisor(specs or [spoken()], **flags) as sup:
            agents: dict[str, Agent] = {spec.id: sup.agent(spec.id) for spec in specs or [spoken()]}
            lifecycle = Lifecycle(sup, {spec.id: spec.id for spec in specs})
            given: dict[str, Any] = {"lifecycle": lifecycle, **(hooks or {})}
            chosen = Hooks(log=tell, **given)
            async with (
                open_gateway(agents, chosen, heartbeat=heartbeat, limit=limit) as gateway,
                trio.open_nursery() as nursery,
            ):
                where = endpoint_of(opened)
                app = AuthMiddleware(application(gateway), where, **(entrance or {}))
                await nursery.start(partial(serve, app, opened, shutdown=trio.Event(), **serving))
                async with httpx2.AsyncClient(base_url=f"http://{where}", timeout=20, verify=False) as client:
                    yield Served(gateway, sup, client, where, told, telling)
                nursery.cancel_scope.cancel()
