"""What a client can do to a server by bytes alone: nothing that another client notices."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
import trio

from proctor.actors.web_server.connections import admit
from proctor.actors.web_server.exchange import Message, Receive, Send
from tests.actors.http_server import (
    REQUEST,
    application,
    begin,
    flood,
    get,
    hello,
    read_all,
    running,
)

UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: here\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
    b"http2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
)


async def secret(scope: Message, receive: Receive, send: Send) -> None:
    """Lets in who asks for /secret, and refuses all others."""
    if scope["path"] == "/secret":
        admit(scope)
        await hello(scope, receive, send)
    else:
        await begin(send, 401, (b"content-length", b"0"))
        await send({"type": "http.response.body", "body": b""})


async def test_clients_that_send_nothing_make_room_for_one_that_asks() -> None:
    async with running(application(hello), connections=8, unauthenticated=4) as server:
        idle = [await server.connect() for _ in range(50)]
        async with await server.connect() as client:
            assert (await get(client)).endswith(b"hello")
        for each in idle:
            await each.aclose()


async def test_a_client_that_was_let_in_keeps_its_connection_whatever_others_open() -> None:
    async with running(application(hello), connections=8, unauthenticated=4) as server:
        async with await server.connect() as client:
            await get(client)
            idle = [await server.connect() for _ in range(50)]
            assert (await get(client)).endswith(b"hello")
        for each in idle:
            await each.aclose()


async def test_a_client_that_is_refused_again_and_again_loses_its_connection() -> None:
    async with (
        running(application(secret, doors=True), admit_timeout=0.3) as server,
        await server.connect() as client,
    ):
        with suppress(trio.BrokenResourceError):
            await client.send_all(REQUEST)
            while (await client.receive_some()).startswith(b"HTTP/1.1 401 "):
                await client.send_all(REQUEST)


async def test_a_client_that_was_let_in_may_stay_longer_than_one_that_was_not() -> None:
    async with (
        running(application(secret, doors=True), admit_timeout=0.3) as server,
        await server.connect() as known,
        await server.connect() as unknown,
    ):
        asked = REQUEST.replace(b"GET / ", b"GET /secret ")
        await get(known, asked)
        assert await read_all(unknown) == b""
        assert (await get(known, asked)).endswith(b"hello")


async def test_clients_that_were_let_in_have_a_bound_of_their_own() -> None:
    async with (
        running(application(hello), connections=1, unauthenticated=4) as server,
        await server.connect() as first,
        await server.connect() as second,
    ):
        await get(first)
        await second.send_all(REQUEST)
        assert await read_all(second) == b""
        assert (await get(first)).endswith(b"hello")


async def test_the_upgrade_to_http_2_is_not_offered() -> None:
    async with running(application(hello)) as server, await server.connect() as client:
        assert (await get(client, UPGRADE)).startswith(b"HTTP/1.1 200")


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_WINDOW = b"\0\0\6\4\0\0\0\0\0" + b"\0\4" + b"\0\0\0\0"  # SETTINGS: INITIAL_WINDOW_SIZE is 0


@pytest.mark.parametrize(
    "first", [PREFACE, PREFACE + NO_WINDOW, PREFACE.replace(b"\r\n", b"\r\nhost: h\r\n", 1)]
)
async def test_a_client_of_http_2_is_disconnected_whatever_its_window(first: bytes) -> None:
    async with running(application(flood)) as server, await server.connect() as client:
        await client.send_all(first)
        assert (await read_all(client)).startswith(b"HTTP/1.1 505 ")


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def no_websocket(scope: Message, receive: Receive, send: Send) -> None:
    """Says hello in HTTP, and refuses all else."""
    if scope["type"] == "http":
        await hello(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1000})


@pytest.mark.parametrize("behind", [b"*", b"?a", b"\0\xff"])
async def test_bytes_that_break_one_connection_break_no_other(behind: bytes) -> None:
    async with running(application(no_websocket)) as server, await server.connect() as other:
        await get(other)
        async with await server.connect() as client:
            await client.send_all(WEBSOCKET + behind)
            await read_all(client)
        assert (await get(other)).endswith(b"hello")


async def test_a_connection_whose_stream_has_ended_is_closed_when_nothing_more_is_asked() -> None:
    async def streaming(scope: Message, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_gone, receive, nursery.cancel_scope)
            await hello(scope, receive, send)
            nursery.cancel_scope.cancel()

    async def until_gone(receive: Receive, scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async with running(application(streaming), idle_timeout=0.1) as server, await server.connect() as client:
        for _ in range(3):
            assert (await get(client)).endswith(b"hello")
        assert await read_all(client) == b""


async def test_a_shortage_of_descriptors_is_waited_out_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, failures = trio.SocketListener.accept, iter(range(3))

    async def short(listener: trio.SocketListener) -> trio.SocketStream:
        if next(failures, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", short)
    async with running(application(hello)) as server, await server.connect() as client:
        assert (await get(client)).endswith(b"hello")
    [record] = [record for record in caplog.records if record.name == "proctor.http"]
    assert record.getMessage() == "a connection could not be accepted: Too many open files (1 so far)"
