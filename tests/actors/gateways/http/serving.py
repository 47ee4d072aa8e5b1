"""A gateway over agents whose far ends are functions, served on a real loopback socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import httpx2
import msgspec
import trio

import proctor
from proctor.actors.gateways.http import Entrance, Gateway, Hooks, application, open_gateway
from proctor.actors.handle import Agent
from proctor.actors.listening import Endpoint, bound, endpoint_of
from proctor.actors.trees import Supervisor, agent_spec
from proctor.actors.webserver import serve
from proctor.runtime.spec import ChildSpec
from tests.actors.spoken import spoken_plan


@attrs.frozen
class Frame:
    """One server-sent event; `id` is None where it had none."""

    event: str
    data: Any
    id: int | None = None


@attrs.frozen
class Served:
    gateway: Gateway
    sup: Supervisor
    client: httpx2.AsyncClient
    where: Endpoint
    told: list[tuple[str, Mapping[str, Any]]]

    @asynccontextmanager
    async def follow(
        self, path: str, *, method: str = "GET", **options: Any
    ) -> AsyncGenerator[AsyncIterator[Frame]]:
        headers = {"accept": "text/event-stream", **options.pop("headers", {})}
        async with self.client.stream(method, path, headers=headers, **options) as response:
            assert response.status_code == 200, (response.status_code, await response.aread())
            assert response.headers["content-type"].startswith("text/event-stream")
            yield frames(response)

    async def read(self, path: str, **options: Any) -> list[Frame]:
        async with self.follow(path, **options) as found:
            return [frame async for frame in found]

    async def ask(self, prompt: str, agent: str = "a", **more: Any) -> httpx2.Response:
        return await self.client.post(f"/agents/{agent}/turns", json={"prompt": prompt, **more})


async def frames(response: httpx2.Response) -> AsyncIterator[Frame]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            id = int(fields["id"]) if "id" in fields else None
            yield Frame(fields["event"], msgspec.json.decode(fields["data"]), id)
            fields = {}


def spoken(id: str = "a", **options: Any) -> ChildSpec:
    plan = attrs.evolve(spoken_plan(**options), name=id)
    return agent_spec(id, plan, {"shutdown": 5.0})


@asynccontextmanager
async def served(
    *specs: ChildSpec,
    hooks: Mapping[str, Any] | None = None,
    heartbeat: float = 15.0,
    limit: int = 8 << 20,
    entrance: Mapping[str, Any] | None = None,
    **serving: Any,
) -> AsyncGenerator[Served]:
    told: list[tuple[str, Mapping[str, Any]]] = []
    chosen = Hooks(tell=lambda what, facts: told.append((what, facts)), **(hooks or {}))
    with trio.fail_after(30), bound(Endpoint()) as opened:
        async with proctor.open_supervisor(specs or [spoken()]) as sup:
            agents: dict[str, Agent] = {spec.id: sup.agent(spec.id) for spec in specs or [spoken()]}
            async with (
                open_gateway(agents, chosen, heartbeat=heartbeat, limit=limit) as gateway,
                trio.open_nursery() as nursery,
            ):
                where = endpoint_of(opened)
                app = Entrance(application(gateway), where, **(entrance or {}))
                await nursery.start(partial(serve, app, opened, shutdown=trio.Event(), **serving))
                async with httpx2.AsyncClient(base_url=f"http://{where}", timeout=20) as client:
                    yield Served(gateway, sup, client, where, told)
                nursery.cancel_scope.cancel()
