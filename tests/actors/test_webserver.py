from __future__ import annotations

import os
import shlex
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from proctor.actors.errors import BadOption
from proctor.actors.web_server.exchange import Message, Receive, Send
from proctor.actors.web_server.listening import Endpoint, bound, endpoint, endpoint_of
from proctor.actors.web_server.peers import refusal
from tests.actors.http_server import LOCAL, REQUEST, application, begin, flood, get, hello, read_all, running
from tests.tables import each_row


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_an_application_is_served_on_a_socket_that_is_handed_in(kind: str, tmp_path: Path) -> None:
    where = LOCAL if kind == "tcp" else Endpoint(path=str(tmp_path / "s"))
    async with running(application(hello), where) as server, await server.connect() as client:
        assert (await get(client)).endswith(b"\r\n\r\nhello")


async def test_a_unix_socket_is_its_owners_alone_and_goes_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with running(application(hello), Endpoint(path=str(path))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


@pytest.mark.parametrize("how", ["shutdown", "cancel"])
async def test_a_client_that_stops_reading_holds_up_no_end(how: str) -> None:
    async with (
        running(application(flood), grace=0.2, write_timeout=60) as server,
        await server.connect() as client,
    ):
        await client.send_all(REQUEST)
        assert await client.receive_some(10)
        await trio.sleep(0.1)  # until the buffers of the system are full
        server.shutdown.set() if how == "shutdown" else server.scope.cancel()
        with trio.fail_after(30):
            await server.stopped.wait()


async def test_a_client_that_takes_in_nothing_loses_its_connection_and_no_other_does() -> None:
    ends: list[str] = []

    async def watched(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await (flood if scope["path"] == "/flood" else hello)(scope, receive, send)
        finally:
            ends.append(scope["path"])

    async with (
        running(application(watched), write_timeout=0.2) as server,
        await server.connect() as stuck,
        await server.connect() as other,
    ):
        await stuck.send_all(REQUEST.replace(b"/ ", b"/flood ", 1))
        while "/flood" not in ends:
            await get(other)
            await trio.sleep(0.01)
        assert len(ends) > 2
        with pytest.raises(trio.BrokenResourceError):  # what was in the buffers of the system is gone as well
            async for _ in stuck:
                pass


async def test_a_slow_reader_of_one_large_body_keeps_its_connection() -> None:
    size, at_once = 8 << 20, 512 << 10

    async def large(scope: Message, receive: Receive, send: Send) -> None:
        await begin(send, 200, (b"content-length", b"%d" % size))
        await send({"type": "http.response.body", "body": bytes(size)})

    async with running(application(large), write_timeout=1.0) as server, await server.connect() as client:
        await client.send_all(REQUEST)
        got, pause = 0, at_once
        while got < size:
            got += (read := len(await client.receive_some(65536)))
            assert read, got
            if got > pause:
                pause += at_once
                await trio.sleep(0.1)  # sixteen of these are longer than one write may take


async def test_at_the_wish_to_stop_idle_connections_are_closed_and_requests_under_way_are_finished() -> None:
    begun, go = trio.Event(), trio.Event()

    async def slow(scope: Message, receive: Receive, send: Send) -> None:
        begun.set()
        await go.wait()
        await hello(scope, receive, send)

    async with (
        running(application(slow), grace=5) as server,
        await server.connect() as idle,
        await server.connect() as busy,
    ):
        await busy.send_all(REQUEST)
        await begun.wait()
        server.shutdown.set()
        assert await read_all(idle) == b""
        with pytest.raises(OSError):  # noqa: PT011  # nobody new is taken
            await server.connect()
        go.set()
        assert (await read_all(busy)).endswith(b"hello")
        await server.stopped.wait()


async def test_a_request_that_is_not_finished_within_the_grace_is_cancelled() -> None:
    begun, ended = trio.Event(), trio.Event()

    async def endless(scope: Message, receive: Receive, send: Send) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with running(application(endless), grace=0.1) as server, await server.connect() as client:
        await client.send_all(REQUEST)
        await begun.wait()
        server.shutdown.set()
        await server.stopped.wait()
        assert ended.is_set()


async def test_a_body_that_the_application_does_not_read_keeps_no_connection() -> None:
    async def refuse(scope: Message, receive: Receive, send: Send) -> None:
        await begin(send, 401, (b"content-length", b"0"))
        await send({"type": "http.response.body", "body": b""})

    async with running(application(refuse), connections=1) as server:
        for _ in range(2):  # the second gets in because the first has gone
            client = await server.connect()
            async with client, trio.open_nursery() as nursery:
                nursery.start_soon(send_what_goes, client, b"POST / HTTP/1.1\r\nhost: h\r\n", 4 << 20)
                answer = await read_all(client)
                assert answer.startswith(b"HTTP/1.1 401")
                assert b"connection: close" in answer
                nursery.cancel_scope.cancel()
            await trio.testing.wait_all_tasks_blocked(0.01)


async def send_what_goes(stream: trio.SocketStream, head: bytes, size: int) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.send_all(head + b"content-length: %d\r\n\r\n" % size + bytes(size))


async def test_a_request_is_cancelled_when_its_client_has_gone_while_its_body_was_not_read() -> None:
    begun, ended = trio.Event(), trio.Event()

    async def deaf(scope: Message, receive: Receive, send: Send) -> None:
        begun.set()
        try:
            await flood(scope, receive, send)
        finally:
            ended.set()

    async with running(application(deaf)) as server:
        async with await server.connect() as client:
            await client.send_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n")
            await begun.wait()
        await ended.wait()


async def test_an_application_that_cannot_start_is_not_served() -> None:
    async def broken(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.RaisesGroup(pytest.RaisesExc(Exception, match="no database"), flatten_subgroups=True):
        async with running(broken):
            pass


ENDPOINTS = {
    "8321": Endpoint("127.0.0.1", 8321),
    ":8321": Endpoint("127.0.0.1", 8321),
    "localhost:0": Endpoint("127.0.0.1", 0),
    "127.0.0.2:80": Endpoint("127.0.0.2", 80),
    "[::1]:8321": Endpoint("::1", 8321),
    "0.0.0.0:8321": Endpoint("0.0.0.0", 8321),
    "unix:/a/s": Endpoint(path="/a/s"),
}


@each_row(("text", "meant"), ENDPOINTS.items())
def test_an_address_is_read_as_people_write_it(text: str, meant: Endpoint) -> None:
    assert endpoint(text) == meant
    assert endpoint(str(meant)) == meant


@each_row("text", ["", "host", "host:80", "127.0.0.1", "127.0.0.1:65536", "1:-1", "unix:", "::1:x"])
def test_an_address_of_another_kind_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(BadOption, match=r"cannot listen on .*: expected"):
        endpoint(text)


def test_only_loopback_and_unix_sockets_are_private() -> None:
    private = {text for text, meant in ENDPOINTS.items() if meant.private}
    assert private == set(ENDPOINTS) - {"0.0.0.0:8321"}


def test_the_socket_of_a_server_that_died_is_taken_over(tmp_path: Path) -> None:
    where = Endpoint(path=str(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    with bound(where) as opened:
        assert endpoint_of(opened) == where


def test_the_socket_of_a_server_that_lives_and_any_other_file_stay(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    with bound(Endpoint(path=str(tmp_path / "s"))) as living:
        living.listen()
        with (
            pytest.raises(BadOption, match="Address already in use"),
            bound(Endpoint(path=str(tmp_path / "s"))),
        ):
            pass
        assert (tmp_path / "s").exists()
    with pytest.raises(BadOption, match="a file of another kind"), bound(Endpoint(path=str(other))):
        pass
    assert other.read_text() == "mine"


def test_a_socket_that_somebody_else_put_there_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with bound(Endpoint(path=path)), socket.socket(socket.AF_UNIX) as later:
        os.rename(path, path + ".old")
        later.bind(path)
    assert os.path.exists(path)


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    with bound(LOCAL) as first:
        first.listen()
        where = endpoint_of(first)
        with (
            pytest.raises(BadOption, match=f"cannot listen on {where}: Address already in use"),
            bound(where),
        ):
            pass


ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(sys.argv[1])
    try:
        peer.sendall(b"GET / HTTP/1.1\\r\\nhost: here\\r\\nconnection: close\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: peer.recv(4096), b""))
    except OSError:
        answer = b""
sys.exit(0 if answer.endswith(b"hello") else 3)
"""


@pytest.mark.parametrize("detached", [False, True], ids=["a child", "in a session of its own"])
async def test_a_process_that_the_host_has_started_is_refused_at_its_socket(
    detached: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = Endpoint(path=str(tmp_path / "door"))
    async with running(application(hello), where) as server:
        for _ in range(2):
            peer = await trio.run_process(
                [sys.executable, "-c", ASK, str(server.where.path)], check=False, start_new_session=detached
            )
            assert peer.returncode == 3
    [record] = [record for record in caplog.records if record.name == "proctor.http"]
    assert "was started by an agent" in record.getMessage()


async def test_a_process_that_the_host_has_not_started_is_served_at_its_socket(tmp_path: Path) -> None:
    where, done = Endpoint(path=str(tmp_path / "door")), tmp_path / "done"
    os.mkfifo(done)
    async with running(application(hello), where) as server:
        # its parent ends at once, so it is the child of whoever takes in orphans
        ask = f"{shlex.quote(sys.executable)} -c {shlex.quote(ASK)} {server.where.path}"
        await trio.run_process(["sh", "-c", f"({ask}; echo $? > {done}) &"])
        assert await trio.Path(done).read_text() == "0\n"


async def test_a_process_of_another_user_is_refused_at_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with trio.socket.from_stdlib_socket(here) as ours, there:
        assert refusal(ours) is None
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        expected = None if owner == 0 else f"process {os.getpid()} belongs to user {owner}"
        assert refusal(ours) == expected  # the superuser is let in
