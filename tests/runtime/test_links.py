from __future__ import annotations

from typing import Any

import pytest
import trio

from proctor.runtime import (
    Actor,
    ChildSpec,
    Crash,
    DeadLetter,
    Exit,
    ExitReason,
    ExitStatus,
    Killed,
    NoProc,
    Normal,
    Ref,
    Shutdown,
    Stop,
    Supervisor,
    current_actor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.messaging.links import link, unlink
from proctor.runtime.messaging.notices import ExitSignal
from tests.runtime.stage import EXITS, Boom, Notes, end, forever, heard, settled


class Twin(Actor):
    """Links with whom it is told to, and notes exit signals."""

    async def init(self, notes: list[object] | None = None, trap: bool = False) -> None:
        self.notes = [] if notes is None else notes
        self.trap_exits = trap

    async def handle_call(self, msg: Any, from_: object) -> Any:
        match msg:
            case ("link", target):
                self.link(target)
            case ("unlink", target):
                self.unlink(target)
            case ("trap", bool() as trap):
                self.trap_exits = trap
            case Exception():
                raise msg
            case Stop():
                return msg
            case _:
                raise AssertionError(msg)
        return None

    async def handle_cast(self, msg: Any) -> None:
        if isinstance(msg, trio.Event):
            await msg.wait()
        else:
            self.notes.append(msg)

    async def handle_info(self, msg: Any) -> None:
        self.notes.append(msg)

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.append(f"terminate {reason}")


def twin(id: str, notes: list[object] | None = None, trap: bool = False, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": id, "restart": "temporary"}
    return ChildSpec(id, Twin, (notes, trap), **(fields | spec))


def refs(sup: Supervisor, *names: str) -> list[Ref]:
    return [sup.name(name).ref() for name in names]


@pytest.mark.covers("M27")
@pytest.mark.parametrize("by", ["the one that ends", "the other"])
@pytest.mark.parametrize("name", EXITS)
async def test_one_end_of_a_link_ends_the_other_with_its_reason_unless_it_is_normal(
    name: str, by: str
) -> None:
    async with open_supervisor([twin("a"), twin("b")]) as sup:
        a, b = refs(sup, "a", "b")
        one, other = (a, b) if by == "the one that ends" else (b, a)
        await one.call(("link", other))
        await end(a, EXITS[name])
        await settled()
        assert b.is_alive() == (a.exit_reason == Normal())
        if not b.is_alive():
            assert b.exit_reason == a.exit_reason
        assert not b.endpoint.links


@pytest.mark.covers("M27")
@pytest.mark.parametrize("name", EXITS)
async def test_one_that_traps_exits_gets_a_message_whatever_the_reason(name: str) -> None:
    notes: list[object] = []
    async with open_supervisor([twin("a"), twin("b", notes, trap=True)]) as sup:
        a, b = refs(sup, "a", "b")
        await a.call(("link", b))
        await end(a, EXITS[name])
        await settled()
        assert a.exit_reason is not None
        assert notes == [ExitSignal(a, a.exit_reason)]
        assert b.is_alive()


@pytest.mark.covers("M26", "M27")
async def test_an_exit_signal_comes_after_what_its_sender_had_sent() -> None:
    notes: list[object] = []
    async with open_supervisor([twin("a"), twin("b", notes, trap=True)]) as sup:
        a, b = refs(sup, "a", "b")
        link(a, b)
        await b.cast(1)
        await b.cast(2)
        a.kill()
        await settled()
        assert notes == [1, 2, ExitSignal(a, Killed())]


@pytest.mark.covers("M27")
async def test_trapping_may_begin_and_end_in_any_hook() -> None:
    async with open_supervisor([twin("a"), twin("b"), twin("c")]) as sup:
        a, b, c = refs(sup, "a", "b", "c")
        await b.call(("trap", True))
        link(a, b)
        link(b, c)
        await end(a, Killed())
        await settled()
        assert b.is_alive()
        await b.call(("trap", False))
        await end(c, Shutdown())
        await settled()
        assert b.exit_reason == Shutdown()


@pytest.mark.covers("M27")
async def test_a_kill_cannot_be_trapped_by_the_one_killed_and_its_links_see_killed() -> None:
    notes: list[object] = []
    async with open_supervisor([twin("a", notes, trap=True), twin("b", notes)]) as sup:
        a, b = refs(sup, "a", "b")
        link(a, b)
        a.kill()
        await settled()
        assert (a.exit_reason, b.exit_reason) == (Killed(), Killed())
        assert notes == ["terminate killed"]  # b was asked, a had no time


@pytest.mark.covers("M27")
@pytest.mark.parametrize("trap", [False, True])
async def test_a_link_to_nobody_tells_of_it(trap: bool) -> None:
    notes: list[object] = []
    async with open_supervisor([twin("a"), twin("b", notes, trap), twin("c", notes, trap)]) as sup:
        a, b, c = refs(sup, "a", "b", "c")
        await end(a, Normal())
        for one, target in ((b, a), (c, sup.name("nobody"))):
            with one.monitor() as monitor:
                await one.cast("begin")
                link(one, target) if one is b else link(target, one)
                await settled()
                if trap:
                    assert notes[-1] == ExitSignal(target, NoProc())
                else:
                    reason = (await monitor).reason
                    assert isinstance(reason, Crash)
                    assert isinstance(reason.error, NoProc)
        link(a, sup.name("nobody"))
    assert trap == (ExitSignal(a, NoProc()) in notes)


@pytest.mark.covers("M27")
async def test_a_second_link_is_the_same_and_one_unlink_takes_it_back() -> None:
    async with open_supervisor([twin("a"), twin("b"), twin("c")]) as sup:
        a, b, c = refs(sup, "a", "b", "c")
        link(a, b)
        link(b, a)
        await a.call(("link", b))
        await b.call(("unlink", a))
        unlink(a, b)
        unlink(a, sup.name("nobody"))
        link(a, a)
        link(a, c)
        a.kill()
        await settled()
        assert b.is_alive()
        assert c.exit_reason == Killed()
        assert b.endpoint.links == {}


@pytest.mark.covers("M27")
async def test_a_trapped_end_is_told_once_however_often_the_link_was_made() -> None:
    notes: list[object] = []
    async with open_supervisor([twin("a"), twin("b", notes, trap=True)]) as sup:
        a, b = refs(sup, "a", "b")
        link(a, b)
        link(b, a)
        a.kill()
        await settled()
        assert notes == [ExitSignal(a, Killed())]


@pytest.mark.covers("M27")
async def test_an_end_goes_along_a_chain_and_around_a_ring() -> None:
    names = [f"t{n}" for n in range(5)]
    async with open_supervisor([twin(name) for name in names]) as sup:
        ring = refs(sup, *names)
        for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
            link(one, other)
        await end(ring[2], Crash(Boom("crash")))
        await settled()
        assert {ref.exit_reason for ref in ring} == {ring[2].exit_reason}


@pytest.mark.covers("M27", "S14", "S15", "S16")
@pytest.mark.parametrize(
    ("restart", "reason", "again"),
    [
        ("permanent", Shutdown(), True),
        ("transient", Killed(), True),
        ("transient", Shutdown(), False),
        ("temporary", Killed(), False),
    ],
)
async def test_a_supervisor_treats_an_end_by_link_as_any_exit(
    restart: str, reason: ExitReason, again: bool
) -> None:
    async with open_supervisor([twin("a"), twin("b", restart=restart)]) as sup:
        a, b = refs(sup, "a", "b")
        link(a, b)
        await end(a, reason)
        await settled()
        assert b.exit_reason == reason
        assert sup.name("b").is_alive() == again
        if again:
            assert sup.name("b").ref().endpoint.links is None


@pytest.mark.covers("M27")
async def test_linked_functions_end_together() -> None:
    async def linked(*, task_status: trio.TaskStatus[None]) -> None:
        link(current_actor().ref, current_actor().supervisor.name("a"))
        task_status.started()
        await trio.sleep_forever()

    async def fails(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await go.wait()
        raise Exit(ExitStatus(3))

    go = trio.Event()
    specs = [
        ChildSpec("a", fails, name="a", restart="temporary"),
        ChildSpec("b", linked, name="b", restart="temporary"),
    ]
    async with open_supervisor(specs) as sup:
        (b,) = refs(sup, "b")
        go.set()
        await settled()
        assert b.exit_reason == ExitStatus(3)


@pytest.mark.covers("M27", "S11")
async def test_a_link_made_while_starting_may_end_the_start() -> None:
    class Links(Twin):
        async def init(self, notes: list[object] | None = None, trap: bool = False) -> None:
            self.link(self.supervisor.name("nobody"))
            await trio.sleep_forever()

    async with open_supervisor() as sup:
        with pytest.raises(Exception, match="child 'l' did not start: crash: NoProc"):
            await sup.start_child(ChildSpec("l", Links, name="l"))
        assert await sup.which_children() == ()


@pytest.mark.covers("M27", "S57")
async def test_a_supervisor_is_not_ended_by_a_link_but_ends_what_is_linked_to_it() -> None:
    nested = supervisor_spec("s", [ChildSpec("f", forever)], name="s", restart="temporary")
    async with open_supervisor([nested, twin("a"), twin("b")]) as sup:
        s, a, b = refs(sup, "s", "a", "b")
        link(a, s)
        with sup.events() as events:
            a.kill()
            await settled()
            letters = [event.msg for event in heard(events) if isinstance(event, DeadLetter)]
        assert letters == [ExitSignal(a, Killed())]
        assert s.is_alive()
        link(b, s)
        await sup.terminate_child("s")
        await settled()
        assert b.exit_reason == s.exit_reason == Shutdown()


@pytest.mark.covers("M8", "M27")
@pytest.mark.parametrize(("reason", "handled"), [(Shutdown(), True), (Killed(), False)])
async def test_a_draining_actor_drains_only_for_a_clean_end_of_its_link(
    reason: ExitReason, handled: bool
) -> None:
    notes: list[object] = []
    async with open_supervisor([twin("a"), twin("b", notes, drain=True)]) as sup:
        a, b = refs(sup, "a", "b")
        link(a, b)
        gate = trio.Event()
        await b.cast(gate)
        await b.cast("queued")
        await settled()
        a.exit(reason)
        await settled()
        gate.set()
        await settled()
        assert b.exit_reason == reason
        assert ("queued" in notes) == handled


@pytest.mark.covers("M27", "S36")
async def test_stopping_both_ends_of_a_link_in_order_is_no_crash() -> None:
    notes: Notes = []

    class Slow(Twin):
        async def terminate(self, reason: ExitReason) -> None:
            notes.append(f"begin {self.id}")
            await trio.lowlevel.checkpoint()
            notes.append(f"end {self.id}")

    specs = [ChildSpec(id, Slow, name=id) for id in "ab"]
    async with open_supervisor(specs) as sup:
        a, b = refs(sup, "a", "b")
        link(a, b)
    assert (a.exit_reason, b.exit_reason) == (Shutdown(), Shutdown())
    assert notes == ["begin b", "end b", "begin a", "end a"]
