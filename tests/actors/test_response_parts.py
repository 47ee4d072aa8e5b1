"""The parts of a response without a length, as its client gets them, and waits that are cut short between two parts."""

from __future__ import annotations

import h11
import pytest
import trio
from trio.testing import MockClock

from proctor.actors.serving.in_flight import CancelSignal, Waits
from proctor.actors.web_server.exchange import Message, Receive, Send
from proctor.actors.web_server.http1 import BURST
from tests.actors.http_server import REQUEST, application, begin, get, hello, running

PARTS = (b"a", b"", b"b" * (BURST + 1), b"c" * 3_000_000, *[b"%d " % number for number in range(500)])


async def in_parts(scope: Message, receive: Receive, send: Send) -> None:
    if scope["path"] == "/hello":
        await hello(scope, receive, send)
        return
    length = [(b"content-length", b"%d" % sum(map(len, PARTS)))] if scope["path"] == "/sized" else []
    await begin(send, 200, *length)
    for part in PARTS:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send(
        {"type": "http.response.body", "body": b"the end"} if not length else {"type": "http.response.body"}
    )


async def body_of(stream: trio.SocketStream, request: bytes) -> bytes:
    """The body of the response, by a client that knows HTTP."""
    await stream.send_all(request)
    reader, body = h11.Connection(h11.CLIENT), bytearray()
    reader.send(h11.Request(method=request.split()[0], target="/", headers=[("host", "here")]))
    reader.send(h11.EndOfMessage())
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            reader.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Data):
            body += event.data
    return bytes(body)


async def test_a_response_in_parts_arrives_whole_and_its_connection_serves_the_next_request() -> None:
    async with running(application(in_parts)) as server, await server.connect() as client:
        for _ in range(2):
            assert await body_of(client, REQUEST) == b"".join(PARTS) + b"the end"
        assert (await get(client, REQUEST.replace(b"/ ", b"/hello ", 1))).endswith(b"hello")


async def test_a_response_in_parts_with_a_length_is_not_cut_into_chunks() -> None:
    async with running(application(in_parts)) as server, await server.connect() as client:
        assert await body_of(client, REQUEST.replace(b"/ ", b"/sized ", 1)) == b"".join(PARTS)


async def test_a_client_of_http_1_0_gets_the_parts_as_they_are() -> None:
    async with running(application(in_parts)) as server, await server.connect() as client:
        assert await body_of(client, REQUEST.replace(b"/1.1", b"/1.0")) == b"".join(PARTS) + b"the end"


async def test_the_answer_to_head_has_no_parts() -> None:
    async with running(application(in_parts)) as server, await server.connect() as client:
        assert await body_of(client, REQUEST.replace(b"GET", b"HEAD")) == b""
        assert (await get(client, REQUEST.replace(b"/ ", b"/hello ", 1))).endswith(b"hello")


async def test_a_part_that_the_socket_takes_costs_no_step_of_the_loop_and_many_do_not_hold_it() -> None:
    steps, small, large = 0, 0, 0

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await trio.lowlevel.checkpoint()

    async def counted(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal small, large
        await begin(send)
        before = steps
        for _ in range(10):
            await send({"type": "http.response.body", "body": b"0", "more_body": True})
        small, before = steps - before, steps
        for _ in range(20):
            await send({"type": "http.response.body", "body": bytes(BURST // 5), "more_body": True})
        large = steps - before
        await send({"type": "http.response.body", "body": b"the end"})

    async with (
        trio.open_nursery() as nursery,
        running(application(counted)) as server,
        await server.connect() as client,
    ):
        nursery.start_soon(count)
        assert (await body_of(client, REQUEST)).endswith(b"the end")
        nursery.cancel_scope.cancel()
    assert small == 0
    assert large >= 3


async def test_waits_end_by_their_signal_and_their_time_and_nothing_between_them_does(
    autojump_clock: MockClock,
) -> None:
    signal, event = CancelSignal(), trio.Event()
    event.set()
    waits = Waits(signal, 1.0)
    with waits.scope:
        assert not await waits.ended(event.wait)
        await trio.sleep(5)  # no wait of it
        assert not await waits.ended(event.wait)
        await waits.ended(trio.sleep_forever)
        pytest.fail("the wait did not end")
    assert waits.scope.cancelled_caught
    assert trio.current_time() == pytest.approx(6.0)
    signal.fire("over")
    waits = Waits(signal, 1.0)
    with waits.scope:
        assert await waits.ended(event.wait)
    assert not waits.scope.cancelled_caught


async def test_what_comes_in_the_moment_in_which_a_wait_is_cut_short_is_not_lost(
    autojump_clock: MockClock,
) -> None:
    signal, event, found = CancelSignal(), trio.Event(), list[bool]()
    waits = Waits(signal, 60.0)

    async def wait() -> None:
        with waits.scope:
            found.append(await waits.ended(event.wait))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        event.set()
        signal.fire("over")
    assert (found, waits.scope.cancelled_caught) == ([True], False)
