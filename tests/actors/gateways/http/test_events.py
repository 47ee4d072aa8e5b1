from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from proctor.actors.gateways.http.streams import CACHE_LIMIT, EncodedEvents, EncodedLog, write_log
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.serving.in_flight import CancelSignal
from proctor.protocols.vocabulary import Text
from tests.actors.gateways.http.serving import Frame, Served, served


def texts(count: int, first: int = 0, size: int = 1) -> list[Text]:
    return [Text(number, None, f"{number} " * size) for number in range(first, first + count)]


async def all_of(server: Served) -> list[Frame]:
    found = await server.read("/agents/a/events?since=0&follow=false")
    assert (found[-1].event, found[-1].data["why"]) == ("end", "the events end here")
    return found[:-1]


@pytest.mark.covers("R092")
async def test_a_client_that_comes_back_misses_nothing_and_sees_nothing_twice_at_any_position() -> None:
    async with served() as server:
        await server.ask("one")
        await server.ask("two")
        whole = await all_of(server)
        ids = [frame.id for frame in whole]
        assert ids == list(range(len(whole)))
        for seen in range(len(whole)):
            rest = await server.read("/agents/a/events?follow=false", headers={"last-event-id": str(seen)})
            assert rest[:-1] == whole[seen + 1 :]
            since = await server.read(f"/agents/a/events?follow=false&since={seen}")
            assert since[:-1] == whole[seen:]
            tail = await server.read(f"/agents/a/events?follow=false&tail={seen}")
            assert tail[:-1] == whole[len(whole) - seen :]
        assert (await server.read("/agents/a/events?follow=false&tail=1000"))[:-1] == whole


async def test_a_follower_sees_what_comes_from_now_on() -> None:
    async with served() as server:
        await server.ask("before")
        before = await all_of(server)
        async with server.follow("/agents/a/events") as found:
            await server.ask("after")
            got = list[Frame]()
            async for frame in found:
                got.append(frame)
                if frame.event == "turn_ended":
                    break
        assert got == (await all_of(server))[len(before) : len(before) + len(got)]
    assert got[-1].data["text"] == "2: after"


async def test_the_stream_of_an_agent_that_comes_to_rest_ends_and_is_not_asked_for_again() -> None:
    async with served() as server:
        async with server.follow("/agents/a/events?since=0") as found:
            await server.ask("hello")
            log = server.gateway.encoded_events.of("a", await log_of(server)).log
            log.close()
            got = [frame async for frame in found]
        last = got[-2].id
        again = await server.client.get("/agents/a/events", headers={"last-event-id": str(last)})
    assert (got[-1].event, got[-1].data["why"]) == ("end", "the agent is at rest")
    assert (again.status_code, again.content) == (204, b"")


async def log_of(server: Served) -> EventLog:
    async with server.sup.agent("a").events() as cursor:
        return cursor.log


WRONG: Sequence[tuple[str, str | None, int, str]] = (
    ("/agents/a/events?since=-1", None, 400, "since"),
    ("/agents/a/events?since=x", None, 400, "since"),
    ("/agents/a/events?follow=maybe", None, 400, "follow"),
    ("/agents/a/events", "1.5", 400, "Last-Event-ID"),
    ("/agents/a/events", "9" * 30, 400, "Last-Event-ID"),
    ("/agents/a/events", "100000", 409, "Last-Event-ID"),
    ("/agents/nobody/events", None, 404, "name"),
)
"""Path, the position that was seen, status, place."""


async def test_a_position_that_cannot_be_is_refused_with_what_to_do() -> None:
    async with served() as server:
        for path, seen, status, where in WRONG:
            headers = {} if seen is None else {"last-event-id": seen}
            response = await server.client.get(path, headers=headers)
            problem = response.json()
            assert (response.status_code, problem["status"], problem["where"]) == (status, status, where)
            assert response.headers["content-type"] == "application/problem+json"
            assert problem["remedy"]


async def test_a_stream_with_nothing_to_say_shows_that_it_lives() -> None:
    async with served(heartbeat=0.05) as server, server.follow("/agents/a/events") as found:
        with trio.fail_after(30), trio.CancelScope() as enough:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, found)
                while len(found.comments) < 3:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                enough.cancel()
    assert found.comments[:3] == ["events", "ping", "ping"]


async def test_clients_that_never_read_hold_up_nobody_and_lose_their_connection_after_a_stall() -> None:
    async with served(write_timeout=0.3) as server:
        log = await log_of(server)
        stuck = [await trio.open_tcp_stream(server.where.host, server.where.port) for _ in range(5)]
        for stream in stuck:
            await stream.send_all(b"GET /agents/a/events?since=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with server.follow("/agents/a/events?since=0") as found:
            log.append(texts(400, size=1000))  # more than the system's buffers take
            got = [await anext(found) for _ in range(log.end)]
        assert [frame.id for frame in got] == list(range(log.end))
        await server.until_told(6)
        for stream in stuck:
            await stream.aclose()
    assert {what for what, _ in server.told} == {"stream ended"}


async def test_an_event_is_encoded_once_for_all_who_read_it() -> None:
    log, got = EventLog(), [bytearray() for _ in range(500)]
    encoded, closing = EncodedEvents().of("a", log), CancelSignal()

    async def read(seen: bytearray) -> None:
        async def write(data: bytes) -> None:
            seen.extend(data)
            await trio.lowlevel.checkpoint()

        await write_log(encoded, 0, closing, write)

    async with trio.open_nursery() as nursery:
        for seen in got:
            nursery.start_soon(read, seen)
        await trio.testing.wait_all_tasks_blocked()
        for first in range(0, 100, 10):
            log.append(texts(10, first))
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        log.close()
    assert encoded.encoded == 100
    assert {bytes(seen) for seen in got} == {bytes(got[0])}
    assert got[0].count(b"id: ") == 100


async def test_what_is_held_of_a_log_is_bounded_and_a_reader_behind_it_misses_nothing() -> None:
    log = EventLog()
    encoded, position, seen = EncodedLog(log), 0, 0
    for first in range(0, 5000, 50):
        log.append(texts(50, first, size=50))
    while position < log.end:
        data, position = encoded.after(position)
        seen += data.count(b"id: ")
        assert encoded.cached <= CACHE_LIMIT + 2**16
    assert seen == log.end == encoded.encoded == 5000


async def test_frames_stop_before_the_end_they_are_given_and_those_behind_it_are_whole() -> None:
    log = EventLog()
    log.append(texts(10))
    encoded = EncodedLog(log)
    assert encoded.after(0, 4)[1] == 4
    data, position = encoded.after(4)
    assert (data.count(b"id: "), position) == (6, 10)
    assert encoded.after(0)[1] == 10
