"""Messages between tasks of one process: calls, casts and streams.

    python -m bench.mailbox [--operations 30000] [--rounds 7] [--actors 1000]

A call is a question and its answer, a cast a message without one, handled before the watch stops. "1" is one sender and
one receiver; with more, each of N senders has a receiver of its own and does an Nth of the operations. Ours are real
actors under a supervisor: every call has a deadline, ends when its callee dies, and by `Name` looks its callee up.

Two more works are about what waits. In one, so many requests are open at once, all with one time-out or each with its
own; the watch stops when all are answered. In the other so many ends of watched actors stand in one mailbox and are
handled; the costs of one are to be the same for few and for many.

The watch runs while the senders do; every task has been started, and waits, before. Receivers count or echo, and a
wrong number is an error.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
import trio.testing
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from bench.contest import Contender, Result, Stopwatch, Work, hold, in_asyncio, in_trio, options, table
from bench.peers import entries
from proctor.runtime import (
    NO_REPLY,
    Actor,
    Address,
    Call,
    ChildSpec,
    Down,
    Sink,
    Supervisor,
    open_supervisor,
    reply,
)

OPERATIONS = 30_000
ACTORS = 1000
ROOM = 1000
"""Messages that wait for one receiver: the default of our mailbox, and given to every queue and channel here."""

DEMAND = 64
"""Items of a stream that may be ahead of its consumer: our default, and the room of the channel beside it."""

PING_PONG = "two tasks, ping-pong"
STOCK = "Trio, channels"
ASYNCIO = "asyncio, queue + future"
BY_NAME = "Name.call"
ONE_TIMEOUT = "one time-out"
OPEN = 10_000
NOTICES = 50_000

Job = Callable[[], Awaitable[object]]


class Lost(Exception):
    """Not every message was handled, or one came out as another."""


def expect(got: object, wanted: object) -> None:
    """Raises `Lost` when they differ."""
    if got != wanted:
        raise Lost(f"{got!r} in place of {wanted!r}")


async def clocked(senders: Sequence[Job], receivers: Sequence[Job] = ()) -> Stopwatch:
    """Run all to their ends, in Trio; the watch starts when each of them waits."""
    gate, watch = trio.Event(), Stopwatch()

    async def gated(sender: Job) -> None:
        await gate.wait()
        await sender()

    async with trio.open_nursery() as nursery:
        for receiver in receivers:
            nursery.start_soon(receiver)
        for sender in senders:
            nursery.start_soon(gated, sender)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()  # else what starting them left decides in whose time the next full collection falls
        watch.start()
        gate.set()
    watch.stop()
    return watch


class PingPong:
    """Two tasks that wake each other `times` times: the least that a call can cost."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._ping: Task
        self._pong: Task

    async def ping(self) -> None:
        """The caller."""
        self._ping = current_task()
        for _ in range(self._times):
            reschedule(self._pong)
            await wait_task_rescheduled(_aborted)

    async def pong(self) -> None:
        """The callee."""
        self._pong = current_task()
        for _ in range(self._times):
            await wait_task_rescheduled(_aborted)
            reschedule(self._ping)


def _aborted(_: object) -> Abort:
    return Abort.SUCCEEDED


async def ping_pong(actors: int, operations: int) -> Stopwatch:
    """`PingPong` in `actors` pairs."""
    pairs = [PingPong(operations // actors) for _ in range(actors)]
    return await clocked([pair.ping for pair in pairs], [pair.pong for pair in pairs])


class Echo(Actor):
    """Answers a call with its message, and a stream with so many numbers."""

    async def handle_call(self, msg: object, from_: Call) -> object:
        return msg

    async def handle_stream(self, msg: int, sink: Sink) -> None:
        await sink.send_all(range(msg))


class Counter(Actor):
    """Counts casts; a call tells how many."""

    async def init(self) -> None:
        self.count = 0

    async def handle_call(self, msg: object, from_: Call) -> int:
        return self.count

    async def handle_cast(self, msg: object) -> None:
        self.count += 1


Send = Callable[[Address, int], Awaitable[object]]


async def supervised(kind: type[Actor], named: bool, send: Send, actors: int, operations: int) -> Stopwatch:
    """`send` an Nth of the operations to each of `actors` actors, by its name or its reference."""
    names = [f"actor{number}" for number in range(actors)]
    specs = [ChildSpec(name, kind, name=name, mailbox=ROOM) for name in names]
    async with open_supervisor(specs) as tree:
        targets = [address(tree, name, named) for name in names]
        return await clocked([partial(send, target, operations // actors) for target in targets])


def address(tree: Supervisor, name: str, named: bool) -> Address:
    """Somebody's name, or who bears it."""
    return tree.name(name) if named else tree.name(name).ref()


async def call(target: Address, times: int) -> None:
    """Ask and be answered."""
    for number in range(times):
        expect(await target.call(number), number)


async def cast(target: Address, times: int) -> None:
    """Tell; the question at the end is answered after all that was told."""
    for number in range(times):
        await target.cast(number)
    expect(await target.call(None), times)


async def stream_one_by_one(target: Address, times: int) -> None:
    """Be sent so many items, and look at each."""
    count = 0
    async with target.stream(times, demand=DEMAND) as items:
        async for _ in items:
            count += 1
    expect(count, times)


async def stream_by_batch(target: Address, times: int) -> None:
    """The same, taking all that is there."""
    count = 0
    async with target.stream(times, demand=DEMAND) as items:
        while count < times:
            count += len(await items.receive_batch())
    expect(count, times)


class Channels:
    """A channel there and a channel back."""

    def __init__(self, times: int, room: int = ROOM) -> None:
        self._times = times
        self._send, self._requests = trio.open_memory_channel[int](room)
        self._answer, self._answers = trio.open_memory_channel[int](1)

    async def call(self) -> None:
        """The caller."""
        for number in range(self._times):
            await self._send.send(number)
            expect(await self._answers.receive(), number)
        self._send.close()

    async def echo(self) -> None:
        """Its callee."""
        async for number in self._requests:
            await self._answer.send(number)

    async def cast(self) -> None:
        """One who tells."""
        for number in range(self._times):
            await self._send.send(number)
        self._send.close()

    async def count(self) -> None:
        """One who is told."""
        count = 0
        async for _ in self._requests:
            count += 1
        expect(count, self._times)


async def channel_calls(actors: int, operations: int) -> Stopwatch:
    """Two channels for each of `actors` pairs."""
    pairs = [Channels(operations // actors) for _ in range(actors)]
    return await clocked([pair.call for pair in pairs], [pair.echo for pair in pairs])


async def channel_casts(room: int, actors: int, operations: int) -> Stopwatch:
    """One channel for each of `actors` pairs."""
    pairs = [Channels(operations // actors, room) for _ in range(actors)]
    return await clocked([pair.cast for pair in pairs], [pair.count for pair in pairs])


class Queue:
    """A bounded queue; a question brings the future for its answer."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._queue = asyncio.Queue[tuple[int, asyncio.Future[int] | None]](ROOM)

    async def call(self) -> None:
        """The caller."""
        loop = asyncio.get_running_loop()
        for number in range(self._times):
            future = loop.create_future()
            await self._queue.put((number, future))
            expect(await future, number)

    async def cast(self) -> None:
        """One who tells."""
        for number in range(self._times):
            await self._queue.put((number, None))

    async def serve(self) -> None:
        """The other side of both."""
        for _ in range(self._times):
            number, future = await self._queue.get()
            if future is not None:
                future.set_result(number)


async def queues(cast: bool, actors: int, operations: int) -> Stopwatch:
    """A queue for each of `actors` pairs."""
    pairs = [Queue(operations // actors) for _ in range(actors)]
    gate, watch = asyncio.Event(), Stopwatch()

    async def gated(pair: Queue) -> None:
        await gate.wait()
        await (pair.cast() if cast else pair.call())

    async with asyncio.TaskGroup() as group:
        for pair in pairs:
            group.create_task(pair.serve())
            group.create_task(gated(pair))
        await asyncio.sleep(0)
        gc.collect()
        watch.start()
        gate.set()
    watch.stop()
    return watch


def calls(actors: int, operations: int) -> Work:
    """Questions and answers; the reference is the switch of tasks there and back."""

    def ours(named: bool) -> Callable[[int], Stopwatch]:
        return in_trio(partial(supervised, Echo, named, call, actors))

    contenders = (
        Contender("limit", PING_PONG, in_trio(partial(ping_pong, actors))),
        Contender("ours", "Ref.call", ours(named=False)),
        Contender("ours", BY_NAME, ours(named=True)),
        Contender("peer", STOCK, in_trio(partial(channel_calls, actors))),
        Contender("peer", ASYNCIO, in_asyncio(partial(queues, False, actors))),
        *entries.mailboxes("call", actors),
    )
    return Work(f"call, {actors}", whole(operations, actors), PING_PONG, contenders)


def casts(actors: int, operations: int) -> Work:
    """Messages without an answer; the reference is Trio's channel."""
    contenders = (
        Contender("ours", "Ref.cast", in_trio(partial(supervised, Counter, False, cast, actors))),
        Contender("ours", "Name.cast", in_trio(partial(supervised, Counter, True, cast, actors))),
        Contender("peer", STOCK, in_trio(partial(channel_casts, ROOM, actors))),
        Contender("peer", "asyncio, queue", in_asyncio(partial(queues, True, actors))),
        *entries.mailboxes("cast", actors),
    )
    return Work(f"cast, {actors}", whole(operations, actors), STOCK, contenders)


def streams(operations: int) -> Work:
    """Items of one stream; the reference is Trio's channel."""

    def ours(take: Send) -> Callable[[int], Stopwatch]:
        return in_trio(partial(supervised, Echo, False, take, 1))

    contenders = (
        Contender("ours", "Ref.stream, async for", ours(stream_one_by_one)),
        Contender("ours", "Ref.stream, by batch", ours(stream_by_batch)),
        Contender("peer", STOCK, in_trio(partial(channel_casts, DEMAND, 1))),
    )
    return Work("stream items", operations, STOCK, contenders)


class Postpones(Actor):
    """Answers all questions at once, when it is told to."""

    async def init(self) -> None:
        self.open: list[Call] = []

    async def handle_call(self, msg: object, from_: Call) -> object:
        self.open.append(from_)
        return NO_REPLY

    async def handle_cast(self, msg: object) -> None:
        for call in self.open:
            reply(call, None)


async def requests(distinct: bool, operations: int) -> Stopwatch:
    """So many requests that are open at once, of one time-out or each of its own."""
    async with open_supervisor([ChildSpec("postpones", Postpones, mailbox=operations)]) as tree:
        target = tree.child("postpones").ref()
        gc.collect()
        with Stopwatch() as watch:
            opened = [target.send_request(n, 1000 + (n if distinct else 0)) for n in range(operations)]
            await target.cast(None)
            for request in opened:
                await request.wait()
    return watch


class Watches(Actor):
    """Counts the ends of whom it watches; stands still until the gate opens."""

    async def init(self, gate: trio.Event) -> None:
        self.gate, self.count = gate, 0

    async def handle_cast(self, msg: Sequence[Address]) -> None:
        for target in msg:
            self.monitor(target)
        await self.gate.wait()

    async def handle_info(self, msg: object) -> None:
        self.count += isinstance(msg, Down)

    async def handle_call(self, msg: object, from_: Call) -> int:
        return self.count


async def notices(operations: int) -> Stopwatch:
    """So many notices that stand in one mailbox before the first is handled."""
    gate = trio.Event()
    async with open_supervisor([ChildSpec("watches", Watches, (gate,))]) as tree:
        watches = tree.child("watches")
        gc.collect()
        with Stopwatch() as watch:
            await watches.cast([tree.child("nobody")] * operations)
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
            expect(await watches.call(None, None), operations)
    return watch


def open_requests(operations: int) -> Work:
    """Requests with and without time-outs of their own; the reference is those with one."""
    contenders = (
        Contender("ours", ONE_TIMEOUT, in_trio(partial(requests, False))),
        Contender("ours", "a time-out each", in_trio(partial(requests, True))),
    )
    return Work(f"open requests, {operations}", operations, ONE_TIMEOUT, contenders)


def queued_notices(operations: int) -> Work:
    """Notices that wait in one mailbox."""
    contender = Contender("ours", "Actor.monitor, Down", in_trio(notices))
    return Work(f"notices, {operations}", operations, contender.name, (contender,))


def whole(operations: int, actors: int) -> int:
    """`operations`, rounded so that each actor has as many."""
    return max(1, operations // actors) * actors


def results(
    operations: int, actors: int, rounds: int, requests: int = OPEN, most: int = NOTICES
) -> list[Result]:
    """All works, one after the other; so many requests are open, and a fourth of `most` notices waits, and all of them."""
    works = [make(count, operations) for make in (calls, casts) for count in (1, actors)]
    waiting = [open_requests(requests), queued_notices(max(1, most // 4)), queued_notices(most)]
    return [result for work in (*works, streams(operations), *waiting) for result in hold(work, rounds)]


def main() -> None:
    """Print the table."""
    chosen = options("Messages between tasks", operations=OPERATIONS, actors=ACTORS)
    print(table(results(chosen.operations, chosen.actors, chosen.rounds)))


if __name__ == "__main__":
    main()
