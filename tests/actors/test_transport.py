from __future__ import annotations

import json

import pytest
import trio

from proctor.actors.errors import TransportMisuse
from proctor.actors.transport.memory import PeerStreams, in_memory
from proctor.actors.transport.transport import ProcessTransport, Start, Transport
from proctor.runtime.exits import ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes.process import Command
from proctor.runtime.processes.process_errors import NotFound, ProcessGone, StdinClosed
from proctor.runtime.processes.stopping import Step
from tests.actors.far_ends import KINDS, Make
from tests.runtime.programs import ENV


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


async def everything(transport: Transport) -> bytes:
    return b"".join([chunk async for chunk in transport.messages()])


@pytest.mark.covers("R093")
async def test_what_is_written_is_heard_and_what_is_said_is_read(make: Make) -> None:
    transport = make("echo")
    async with transport.connect():
        await transport.write(b"one\n")
        await transport.write(b"two\n")
        transport.end_input()
        assert await everything(transport) == b"one\ntwo\n"
        assert await transport.wait() == Normal()


@pytest.mark.covers("R095")
async def test_a_second_connection_is_refused_and_the_first_lives_on(make: Make) -> None:
    transport = make("echo")
    async with transport.connect():
        with pytest.raises(TransportMisuse, match="was connected before; make another transport"):
            async with transport.connect():
                pass
        await transport.write(b"still here\n")
        transport.end_input()
        assert await everything(transport) == b"still here\n"
    with pytest.raises(TransportMisuse, match="was connected before"):
        async with transport.connect():
            pass


@pytest.mark.covers("R095")
async def test_a_bad_path_is_an_error_on_connecting() -> None:
    transport = ProcessTransport(
        Start(command=Command(("/nowhere/at-all",), ENV), on_stderr=lambda data: None)
    )
    with pytest.raises(NotFound, match="there is no such program"):
        async with transport.connect():
            pass
    assert (transport.is_ready(), transport.exit, transport.pid) == (False, None, None)


async def test_before_it_is_connected_nothing_can_be_done_with_it(make: Make) -> None:
    transport = make("echo")
    with pytest.raises(TransportMisuse, match="is not connected yet"):
        await transport.write(b"x")
    with pytest.raises(TransportMisuse, match="is not connected yet"):
        transport.messages()
    with pytest.raises(TransportMisuse, match="is not connected yet"):
        transport.end_input()
    with pytest.raises(TransportMisuse, match="is not connected yet"):
        transport.close()
    with pytest.raises(TransportMisuse, match="is not connected yet"):
        await transport.stop(())
    assert (transport.exit, transport.stderr, transport.pid) == (None, b"", None)


@pytest.mark.covers("R096")
async def test_a_second_reader_is_refused_and_the_first_reads_on(make: Make) -> None:
    transport = make("echo")
    async with transport.connect():
        first = transport.messages()
        with pytest.raises(TransportMisuse, match="have a reader; it keeps them"):
            transport.messages()
        await transport.write(b"for the first\n")
        assert await anext(first) == b"for the first\n"


@pytest.mark.covers("R097", "R190")
async def test_messages_of_a_hundred_tasks_never_interleave(make: Make) -> None:
    transport = make("echo")
    said = bytearray()

    async def write(number: int) -> None:
        await transport.write(
            json.dumps({"n": number, "fill": chr(97 + number % 26) * 65536}).encode() + b"\n"
        )

    async def read() -> None:
        async for chunk in transport.messages():
            said.extend(chunk)

    with trio.fail_after(60):
        async with transport.connect(), trio.open_nursery() as reading:
            reading.start_soon(read)
            async with trio.open_nursery() as writing:
                for number in range(100):
                    writing.start_soon(write, number)
            transport.end_input()
    lines = [json.loads(line) for line in said.splitlines()]
    assert sorted(line["n"] for line in lines) == list(range(100))
    assert all(set(line["fill"]) == {chr(97 + line["n"] % 26)} for line in lines)


@pytest.mark.covers("R098")
async def test_a_write_after_the_end_of_the_input_fails_at_once(make: Make) -> None:
    transport = make("for ever")
    async with transport.connect():
        transport.end_input()
        transport.end_input()
        with pytest.raises(StdinClosed, match="stdin is closed"):
            await transport.write(b"late\n")


@pytest.mark.covers("R098", "R100")
async def test_a_write_to_the_dead_fails_at_once_and_says_how_it_died(make: Make) -> None:
    transport = make("boom")
    async with transport.connect():
        assert await everything(transport) == b"last words\n"
        await transport.wait()
        with pytest.raises(ProcessGone, match="it has ended") as caught:
            await transport.write(b"hello?\n")
        assert caught.value.exit == ExitStatus(1)


async def _write_without_end(transport: Transport) -> None:
    with trio.fail_after(10):
        while True:
            await transport.write(b"x" * 65536)


@pytest.mark.covers("R098")
async def test_a_writer_that_waits_is_thrown_off_by_the_end(make: Make) -> None:
    transport = make("for ever")

    async def kill() -> None:
        await trio.sleep(0.05)
        transport.close()

    async with transport.connect(), trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        # whether its pipe or its exit is seen first is the system's to say
        with pytest.raises((ProcessGone, StdinClosed)):
            await _write_without_end(transport)


@pytest.mark.covers("R099")
async def test_after_the_end_of_the_input_its_output_still_flows(make: Make) -> None:
    transport = make("after the end")
    async with transport.connect():
        await transport.write(b"all of it")
        transport.end_input()
        assert await everything(transport) == b"heard all of it"
        assert await transport.wait() == Normal()


@pytest.mark.covers("R100", "R112")
async def test_a_crash_ends_the_messages_and_tells_its_status_and_stderr(make: Make) -> None:
    transport = make("boom")
    async with transport.connect():
        messages = transport.messages()
        assert [chunk async for chunk in messages] == [b"last words\n"]
        await transport.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
    assert transport.exit == ExitStatus(1)
    assert isinstance(transport.exit, ExitStatus)
    assert (transport.exit.stderr, transport.stderr) == (b"boom", b"boom")


@pytest.mark.covers("R040")
async def test_the_end_of_the_output_is_not_the_end(make: Make) -> None:
    transport = make("silent but alive")
    async with transport.connect():
        assert await everything(transport) == b""
        assert (transport.exit, transport.is_ready()) == (None, True)
        transport.end_input()
        assert await transport.wait() == Normal()


@pytest.mark.covers("R101")
async def test_it_is_ready_while_it_is_connected_and_alive(make: Make) -> None:
    ended, closed, left = make("boom"), make("for ever"), make("for ever")
    told = [ended.is_ready()]
    async with ended.connect():
        await ended.wait()
        told.append(ended.is_ready())
    async with closed.connect():
        told.append(closed.is_ready())
        closed.close()
        closed.close()
        assert await closed.wait() == Killed()
        told.append(closed.is_ready())
    async with left.connect():
        pass
    told.append(left.is_ready())
    assert told == [False, False, True, False, False]


@pytest.mark.covers("R104")
async def test_both_directions_work_at_once(make: Make) -> None:
    transport = make("both at once")
    heard = 0

    async def write() -> None:
        for _ in range(40):
            await transport.write(b"y" * 65536)
        transport.end_input()

    with trio.fail_after(60):
        async with transport.connect(), trio.open_nursery() as nursery:
            nursery.start_soon(write)
            async for chunk in transport.messages():
                heard += len(chunk)
    assert heard >= 2_000_000


async def test_leaving_the_block_ends_it_and_the_error_of_the_block_leaves_bare(make: Make) -> None:
    transport = make("for ever")
    with pytest.raises(KeyError, match="mine"):
        async with transport.connect():
            raise KeyError("mine")
    assert transport.exit == Killed()


async def test_a_cancelled_block_ends_it(make: Make) -> None:
    transport = make("echo")
    with trio.CancelScope() as scope:
        async with transport.connect():
            await transport.write(b"hello\n")
            assert await anext(transport.messages()) == b"hello\n"
            scope.cancel("the test")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert transport.exit == Killed()


async def test_it_is_stopped_by_the_first_ladder_whoever_waits(make: Make) -> None:
    transport = make("for ever")
    async with transport.connect():
        assert await anext(transport.messages()) == b"up\n"
        with trio.move_on_after(0.05):
            await transport.stop((Step("close_stdin", 0.2), Step("terminate", 5.0), Step("kill")))
        assert await transport.stop((Step("kill"),)) == Shutdown()
        assert await transport.stop(()) == Shutdown()


async def test_a_stop_by_the_end_of_the_input_is_a_normal_end(make: Make) -> None:
    transport = make("echo")
    async with transport.connect():
        assert await transport.stop((Step("write", 0.2, data=b"bye\n"), Step("close_stdin", 5.0))) == Normal()
        assert await everything(transport) == b"bye\n"


async def test_a_function_that_fails_has_crashed_with_its_traceback_on_stderr() -> None:
    told = bytearray()

    async def fails(side: PeerStreams) -> int | None:
        raise ValueError("no such thing")

    transport = in_memory(fails)(Start(command=Command(("not", "run"), ENV), on_stderr=told.extend))
    async with transport.connect():
        assert await transport.wait() == ExitStatus(1)
    assert b"ValueError: no such thing" in transport.stderr
    assert bytes(told) == transport.stderr


async def test_a_function_is_not_cancelled_with_those_who_talk_to_it() -> None:
    heard = list[bytes]()

    async def listens(side: PeerStreams) -> int | None:
        async for line in side.lines():
            heard.append(line)
            await trio.lowlevel.checkpoint()
        return None

    transport = in_memory(listens)(Start(command=Command(("not", "run"), ENV), on_stderr=lambda data: None))
    with trio.CancelScope() as scope:
        async with transport.connect():
            await transport.write(b"on")
            await transport.write(b"e\ntwo\n")
            scope.cancel("the test")
            with trio.CancelScope(shield=True), trio.fail_after(10):
                transport.end_input()
                assert await transport.wait() == Normal()
    assert heard == [b"one", b"two"]
