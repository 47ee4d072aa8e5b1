from __future__ import annotations

import gc
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import httpx
import pytest
import trio

import proctor
from proctor.actors.errors import BadOption
from proctor.actors.opencode_server.address import Address, GetAddress
from proctor.actors.opencode_server.connection import raw_chunks
from proctor.actors.opencode_server.plan import served_plan
from proctor.actors.opencode_server.server import opencode_server
from proctor.actors.plan.options import AgentOptions
from proctor.actors.runs import ask
from proctor.actors.specs import agent_spec
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec, Strategy
from tests.runtime.programs import installed

LOOPBACK = Path(__file__).parent / "loopback.py"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return installed(tmp_path / "loopback", f"exec {sys.executable} {LOOPBACK}")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def server(program: Path, state: Path) -> ChildSpec:
    return opencode_server("hub", executable=program, env={"LOOPBACK_STATE": str(state)}, shutdown=3.0)


def agent(name: str, folder: Path, **options: Unpack[AgentOptions]) -> ChildSpec:
    chosen: AgentOptions = {"cwd": folder, "silence": 20.0, **options}
    return agent_spec(name, served_plan(name, chosen, server="hub", shutdown=3.0), {"shutdown": 3})


def asked(state: Path) -> list[str]:
    return (state / "requests").read_text().splitlines()


async def test_two_agents_talk_on_one_server_each_in_its_session(
    server: ChildSpec, tmp_path: Path, state: Path
) -> None:
    async with proctor.open_supervisor([server, agent("a", tmp_path), agent("b", tmp_path)]) as sup:
        first = await sup.agent("a").ask("one", timeout=20)
        other = await sup.agent("b").ask("two", timeout=20)
        again = await sup.agent("a").ask("three", timeout=20)
    assert [first.text, other.text, again.text] == ["turn 1: one", "turn 1: two", "turn 2: three"]
    assert first.session_id == again.session_id != other.session_id
    assert asked(state)[-1] == "POST /global/dispose"


async def test_a_question_is_denied_and_an_interrupt_ends_the_turn(server: ChildSpec, tmp_path: Path) -> None:
    async with proctor.open_supervisor([server, agent("a", tmp_path, permission="deny")]) as sup:
        denied = await sup.agent("a").ask("ask", timeout=20)
        async with sup.agent("a").stream("wait") as turn:
            async for event in turn:
                if isinstance(event, v.TurnStarted):
                    assert await sup.agent("a").interrupt()
        after = await sup.agent("a").ask("on", timeout=20)
    assert (denied.text, denied.denied_tools) == ("reject", ("bash",))
    assert (turn.answer.outcome, after.text) == ("interrupted", "turn 3: on")


async def test_a_stream_that_breaks_is_opened_again_and_the_session_read(
    server: ChildSpec, tmp_path: Path, state: Path
) -> None:
    async with (
        proctor.open_supervisor([server, agent("a", tmp_path)]) as sup,
        sup.agent("a").stream("cut") as turn,
    ):
        events = [event async for event in turn]
    assert "events_missed" in [e.code for e in events if isinstance(e, v.Notice)]
    assert asked(state).count("GET /event") == 2
    assert "GET /session/status" in asked(state)


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one"])
async def test_a_server_that_dies_is_started_anew_and_its_agents_go_on_in_their_sessions(
    strategy: Strategy, server: ChildSpec, tmp_path: Path
) -> None:
    children = [server, agent("a", tmp_path), agent("b", tmp_path)]
    async with proctor.open_supervisor(children, strategy=strategy, intensity=3, period=60) as sup:
        before = [await sup.agent(name).ask("one", timeout=20) for name in ("a", "b")]
        with pytest.raises(proctor.MaybeExecuted):
            await sup.agent("a").ask("die", timeout=30)
        after = [await sup.agent(name).ask("on", timeout=30) for name in ("a", "b")]
    assert [answer.session_id for answer in after] == [answer.session_id for answer in before]
    assert [answer.text for answer in after] == ["turn 3: on", "turn 2: on"]


async def test_an_idle_agent_outlives_its_server_too(server: ChildSpec, tmp_path: Path) -> None:
    async with proctor.open_supervisor([server, agent("a", tmp_path)], intensity=5, period=60) as sup:
        before = await sup.agent("a").ask("one", timeout=20)
        address = await sup.name("hub").call(GetAddress())
        os.kill(address.pid, signal.SIGKILL)
        with trio.fail_after(20):
            while (await sup.agent("a").status()).incarnation == 1:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.05)
        after = await sup.agent("a").ask("two", timeout=20)
        assert await sup.name("hub").call(GetAddress()) != address
    assert (after.session_id, after.text) == (before.session_id, "turn 2: two")


async def test_an_agent_without_its_server_cannot_start_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(proctor.StartError, match="server 'hub' cannot be reached"):
        async with proctor.open_supervisor([agent("a", tmp_path)], intensity=0):
            pass


async def test_an_agent_on_a_server_needs_a_tree(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="must be in a supervision tree, after that server"):
        await ask(served_plan("a", {"cwd": tmp_path}, server="hub"), "hi", timeout=10)


def test_mode_serve_without_a_server_is_a_bad_option() -> None:
    with pytest.raises(BadOption, match="server must be the id of an opencode_server in mode 'serve'"):
        served_plan("a", {}, server=None)


@pytest.mark.parametrize("option", ["env", "home", "executable"])
def test_what_only_a_process_has_is_refused_for_a_session_on_a_server(option: str) -> None:
    options: dict[str, Any] = {option: {"A": "b"}}
    with pytest.raises(
        BadOption, match=f"agent 'a': {option} means nothing on a server: give it to opencode_server 'hub'"
    ):
        proctor.opencode("a", mode="serve", server="hub", **options)


async def test_a_server_that_ends_before_it_listens_is_a_refused_start(tmp_path: Path) -> None:
    program = installed(tmp_path / "broken", "echo no port >&2; exit 1")
    spec = opencode_server("hub", executable=program)
    with pytest.raises(
        proctor.StartError, match=r"it ended with exit status 1.* before it listened; stderr ends 'no port"
    ):
        async with proctor.open_supervisor([spec], intensity=0):
            pass


async def test_a_server_that_never_listens_is_given_up(tmp_path: Path) -> None:
    program = installed(tmp_path / "mute", "exec sleep 60")
    spec = opencode_server("hub", executable=program, start=0.3)
    with pytest.raises(proctor.StartError, match=r"did not report its address within 0\.3 s"):
        async with proctor.open_supervisor([spec], intensity=0):
            pass


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Address("http://127.0.0.1:1", "opencode", "secret"))


async def test_a_reader_that_is_cancelled_between_two_chunks_leaves_nothing_to_the_collector() -> None:
    async def respond(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await stream.receive_some()  # until the client closes

    async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
        serve = partial(trio.serve_tcp, respond, 0, host="127.0.0.1")
        [listener] = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        response = await client.send(client.build_request("GET", f"http://127.0.0.1:{port}"), stream=True)
        with trio.CancelScope() as scope:
            async with raw_chunks(response) as chunks:
                async for chunk in chunks:
                    assert chunk == b"hello"
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        gc.collect()  # a generator that is found here is a warning, and so a failure
        nursery.cancel_scope.cancel()
