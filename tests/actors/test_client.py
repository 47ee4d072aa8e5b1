"""The client of a running fleet, against a gateway on a control socket of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

import proctor
from proctor.actors.client.connection import Connection
from proctor.actors.client.fleet import RemoteFleet
from proctor.actors.client.problems import KINDS
from proctor.actors.client.sockets import Host
from proctor.actors.errors import NotExecuted
from proctor.actors.gateways.http import AuthMiddleware, Hooks, Lifecycle, application, open_gateway
from proctor.actors.gateways.http.problems import NAMES
from proctor.actors.store.memory import MemoryStore
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve
from proctor.protocols.vocabulary import TurnEnded, TurnStarted
from proctor.runtime.errors import Running
from proctor.runtime.exits import NoProc
from tests.actors.gateways.http.serving import spoken
from tests.actors.gateways.http.test_approvals import ASKS_USER, asks

PATIENCE = 30.0


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the client of this test looks for sockets."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "proctor").mkdir()
    return tmp_path / "proctor"


@asynccontextmanager
async def hosted(folder: Path, name: str = "review") -> AsyncGenerator[proctor.Supervisor]:
    """A fleet of this name that is served on its control socket."""
    wonders = partial(asks, request=ASKS_USER)
    specs = [
        spoken("a"),
        spoken("asks", asks, permission="ask"),
        spoken("wonders", wonders, permission="ask"),
    ]
    path = Endpoint(path=str(folder / f"{name}.sock"))
    with trio.fail_after(PATIENCE), bound(path) as opened:
        async with proctor.open_supervisor(specs, name=name, store=MemoryStore(), intensity=9) as sup:
            agents = {spec.id: sup.agent(spec.id) for spec in specs}
            hooks = Hooks(lifecycle=Lifecycle(sup, {spec.id: spec.id for spec in specs}))
            async with open_gateway(agents, hooks) as gateway, trio.open_nursery() as nursery:
                app = AuthMiddleware(application(gateway), endpoint_of(opened))
                await nursery.start(partial(serve, app, opened, shutdown=trio.Event()))
                yield sup
                nursery.cancel_scope.cancel()


async def test_an_agent_of_another_process_is_asked_as_one_of_our_own(sockets: Path) -> None:
    async with hosted(sockets), proctor.connect("review") as fleet:
        agent = fleet.agent("a")
        answer = await agent.ask("hello", key="order-17")
        assert (answer.ok, answer.text, answer.agent) == (True, "1: hello", "a")
        assert (await agent.ask("hello", key="order-17")).text == "1: hello"
        receipt = await agent.queue("more", key="order-18")
        assert receipt
        assert (await receipt.answer()).text == "2: more"
        status = await agent.status()
        assert (status.state, status.turns) == ("idle", 2)
        assert {name: one.state for name, one in (await fleet.agents()).items()} == {
            "a": "idle",
            "asks": "idle",
            "wonders": "idle",
        }
        assert (await agent.steer("left")).fate == "refused"
        assert fleet.host.pid == os.getpid()


async def test_the_events_of_an_agent_at_rest_end_at_once(sockets: Path) -> None:
    async with hosted(sockets) as sup, proctor.connect() as fleet:
        async with sup.agent("a").events() as cursor:
            cursor.log.close()
        async with fleet.agent("a").events() as events:
            assert [event async for event in events] == []


async def test_a_turn_is_followed_and_interrupted_and_its_agent_commanded(sockets: Path) -> None:
    async with hosted(sockets), proctor.connect() as fleet, trio.open_nursery() as nursery:
        agent, ends = fleet.agent("a"), list[proctor.Answer]()

        async def ask() -> None:
            ends.append(await agent.ask("hang"))

        async with agent.events(since=0) as events:
            nursery.start_soon(ask)
            async for event in events:
                if isinstance(event, TurnStarted):
                    assert await agent.interrupt()
                if isinstance(event, TurnEnded):
                    break
        while not ends:  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert ends[0].outcome == "interrupted"
        assert ends[0].delivery is not None
        assert (await agent.stop()).state == "stopped"
        assert (await agent.start()).state == "idle"
        with pytest.raises(Running, match="is running"):
            await agent.start()
        assert (await agent.park("wait")).evidence == "by the operator: wait"
        assert (await agent.unpark()).state == "idle"
        assert (await agent.restart()).state == "idle"


async def test_changes_are_followed_by_sequence_and_approvals_decided(sockets: Path) -> None:
    async with hosted(sockets), proctor.connect("review") as fleet, trio.open_nursery() as nursery:
        snapshot, agent = await fleet.status(), fleet.agent("asks")
        async with fleet.changes(snapshot["sequence"]) as changes, agent.approvals() as approvals:
            nursery.start_soon(agent.queue, "go")
            approval = await anext(approvals)
            [listed] = await fleet.approvals()
            assert (listed.id, listed.tool) == (approval.id, approval.tool)
            async for change in changes:
                if change.kind == "agent" and change.record["approvals"]:
                    break
            assert (listed.choices, listed.diff, listed.questions) == (("allow", "deny", "always"), None, ())
            assert (await approval.extend(7200)).seconds_left > 7000
            assert await approval.allow(always=True) == "allowed"
            with pytest.raises(proctor.RemoteError, match="settled or never existed"):
                await approval.deny("late")


async def test_a_question_to_the_person_is_answered_from_another_process(sockets: Path) -> None:
    async with hosted(sockets), proctor.connect("review") as fleet, trio.open_nursery() as nursery:
        agent = fleet.agent("wonders")
        async with agent.approvals() as approvals:
            nursery.start_soon(agent.queue, "go")
            approval = await anext(approvals)
            [question] = approval.questions
            assert (question.question, question.options) == ("Which?", (("A", "a"),))
            assert approval.choices == ("allow", "deny")
            with pytest.raises(proctor.BadOption, match="give one for each"):
                await approval.answer("A", "B")
            assert await approval.answer("A") == "allowed"


async def test_what_an_agent_raises_is_raised_by_the_client(sockets: Path) -> None:
    async with hosted(sockets), proctor.connect("review") as fleet:
        agent = fleet.agent("a")
        await agent.ask("hello", key="k")
        with pytest.raises(proctor.KeyReused, match="was used for another prompt"):
            await agent.ask("other", key="k")
        with pytest.raises(proctor.MaybeExecuted, match="may have been carried out") as crash:
            await agent.ask("crash")
        assert crash.value.delivery is not None
        assert crash.value.delivery.sent == "yes"
        with pytest.raises(proctor.AskTimeout):
            await agent.ask("hang", timeout=0.2)
        with pytest.raises(proctor.NoProc, match="no such actor: nobody"):
            await fleet.agent("nobody").ask("hello")
        with pytest.raises(proctor.BadOption, match="has no approvals"):
            async with agent.approvals() as approvals:
                await anext(approvals)
        await agent.stop()
        with pytest.raises(proctor.NoProc):
            await agent.ask("hello")


def test_an_error_has_the_class_here_that_its_problem_was_made_of() -> None:
    own = {"no-new-work": NotExecuted, "no-such-agent": NoProc}  # made without an error
    names = {
        kind: next(name for known, name in NAMES.items() if issubclass(kind, known))
        for kind in KINDS.values()
    }
    assert {**{name: kind for kind, name in names.items()}, **own} == KINDS


async def test_a_fleet_that_is_not_there_is_an_error_that_names_those_that_are(sockets: Path) -> None:
    with pytest.raises(proctor.NoSuchFleet, match=r"no fleet 'x' runs under this user$"):
        async with proctor.connect("x"):
            pass
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(sockets / "dead.sock"))
    async with hosted(sockets), hosted(sockets, "other"):
        with pytest.raises(proctor.NoSuchFleet, match=r"no fleet 'dead' runs .*: other, review; name one"):
            async with proctor.connect("dead"):
                pass
        with pytest.raises(proctor.NoSuchFleet, match="2 fleets run"):
            async with proctor.connect():
                pass


Handler = Callable[[trio.SocketStream], Awaitable[None]]


async def hangs(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def closes(stream: trio.SocketStream) -> None:
    if await stream.receive_some():  # else one that only looks who is there
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{")


async def differs(stream: trio.SocketStream) -> None:
    if await stream.receive_some():  # else one that only looks who is there
        await stream.send_all(b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"agents": [1]}')


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (hangs, "does not answer: it may be overloaded, or stopped"),
        (closes, "closed the connection"),
        (differs, "another version of proctor"),
    ],
)
async def test_a_host_that_hangs_or_closes_or_differs_is_one_error(
    handler: Handler, text: str, sockets: Path
) -> None:
    path = str(sockets / "odd.sock")
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(path)
    listener.listen()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, handler, [trio.SocketListener(listener)]))
            with pytest.raises(proctor.HostError, match=text):
                async with proctor.connect("odd", timeout=0.2):
                    pass
            nursery.cancel_scope.cancel()


async def test_a_host_that_has_ended_is_one_error(sockets: Path) -> None:
    fleet = RemoteFleet(Connection(Host("gone", str(sockets / "gone.sock"), 1), 1.0))
    with pytest.raises(proctor.HostError, match=r"'gone' \(process 1\) has ended; start the fleet again"):
        await fleet.status()
