from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ChildSpec,
    ExitReason,
    Shutdown,
    WouldDeadlock,
    current_actor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Probe
from proctor.runtime.supervision.handles import AnySupervisor
from proctor.runtime.task_status import ChildStatus
from tests.runtime.stage import Notes, picture, player, settled

Wait = Callable[[AnySupervisor], Awaitable[object]]
WAITS: list[Wait] = [AnySupervisor.stop, AnySupervisor.wait_stopped]
TEXT = "deadlock: supervisor 'root' waits for the calling actor"


class Waits(Actor):
    """Waits for the end of `whose` supervisor in the hook named, and notes what came of it."""

    async def init(self, hook: str, wait: Wait, seen: list[object], whose: list[AnySupervisor]) -> None:
        self.hook, self.wait, self.seen, self.whose = hook, wait, seen, whose
        await self.try_in("init")

    async def try_in(self, hook: str) -> None:
        if hook == self.hook:
            sup = self.whose[0] if self.whose else self.supervisor
            assert isinstance(sup, AnySupervisor)
            try:
                await self.wait(sup)
            except WouldDeadlock as error:
                self.seen.append(str(error))

    async def handle_call(self, msg: Any, from_: object) -> Any:
        await self.try_in("handle_call")

    async def handle_continue(self, arg: Any) -> None:
        await self.try_in("handle_continue")

    async def terminate(self, reason: ExitReason) -> None:
        await self.try_in("terminate")


@pytest.mark.covers("S56")
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("hook", ["init", "handle_call", "terminate"])
async def test_a_hook_that_waits_for_its_own_supervisors_end_is_refused_at_once(
    hook: str, drain: bool, wait: Wait, autojump_clock: MockClock
) -> None:
    seen: list[object] = []
    spec = ChildSpec("a", Waits, (hook, wait, seen, ()), drain=drain, name="a", shutdown=1000)
    async with open_supervisor([spec]) as sup:
        await sup.name("a").call("try")
        assert sup.ref.is_alive()  # nothing was stopped
    assert trio.current_time() == 0
    assert len(seen) == 1
    assert str(seen[0]).startswith(TEXT)


@pytest.mark.covers("S56")
@pytest.mark.parametrize("wait", WAITS)
async def test_a_grandchild_that_waits_for_the_roots_end_is_refused(
    wait: Wait, autojump_clock: MockClock
) -> None:
    seen: list[object] = []
    whose: list[AnySupervisor] = []
    inner = supervisor_spec("s", [ChildSpec("a", Waits, ("terminate", wait, seen, whose))])
    async with open_supervisor([inner]) as sup:
        whose.append(sup)
    assert trio.current_time() == 0
    assert len(seen) == 1


@pytest.mark.covers("S56")
async def test_a_child_may_stop_a_supervisor_that_does_not_hold_it() -> None:
    whose: list[AnySupervisor] = []
    seen: list[object] = []
    notes: Notes = []
    children = [
        supervisor_spec("s", [player("b", notes)], restart="temporary"),
        ChildSpec("a", Waits, ("handle_call", AnySupervisor.stop, seen, whose), name="a"),
    ]
    async with open_supervisor(children) as sup:
        whose.append(sup.supervisor("s"))
        await sup.name("a").call("stop it")
        assert await picture(sup) == {"a": 1}
    assert seen == []


@pytest.mark.covers("S56")
async def test_a_function_child_and_tasks_it_waits_for_are_refused() -> None:
    seen: list[str] = []

    async def wait() -> None:
        with pytest.raises(WouldDeadlock):
            await current_actor().supervisor.stop()
        seen.append("refused")

    async def body(*, task_status: ChildStatus) -> None:
        task_status.started()
        await wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
        await trio.sleep_forever()

    async with open_supervisor([ChildSpec("a", body)]):
        await settled()
    assert seen == ["refused"] * 2


@pytest.mark.covers("S56")
@pytest.mark.parametrize("which", ["nursery", "background"])
async def test_a_task_of_an_actors_own_nurseries_may_stop_the_supervisor(which: str) -> None:
    class Tasks(Actor):
        async def init(self) -> None:
            getattr(self, which).start_soon(self.stop_all)

        async def stop_all(self) -> None:
            await go.wait()
            await self.supervisor.stop(Shutdown("by a task"))

    go = trio.Event()
    async with open_supervisor([supervisor_spec("s", [ChildSpec("a", Tasks)])]) as sup:
        nested = sup.supervisor("s")
        go.set()
        assert await nested.wait_stopped() == Shutdown("by a task")


@pytest.mark.covers("S56")
async def test_a_childs_exit_of_its_supervisor_by_ref_is_allowed() -> None:
    class Ends(Actor):
        async def handle_call(self, msg: Any, from_: object) -> Any:
            self.supervisor.ref.exit(Shutdown("by a child"))

    async with open_supervisor([ChildSpec("a", Ends, name="a")]) as sup:
        await sup.name("a").call("end")
        assert await sup.wait_stopped() == Shutdown("by a child")


@pytest.mark.covers("S56", "X7")
async def test_a_check_may_stop_the_supervisor_of_its_child() -> None:
    async def check() -> None:
        await current_actor().supervisor.stop(Shutdown("by a check"))

    notes: Notes = []
    async with open_supervisor([player("a", notes, probe=Probe(check=check))]) as sup:
        assert await sup.wait_stopped() == Shutdown("by a check")
    assert notes == ["+a", "-a"]


@pytest.mark.covers("S56")
async def test_a_supervisor_that_has_ended_can_be_waited_for_by_anybody() -> None:
    seen: list[object] = []
    whose: list[AnySupervisor] = []
    async with open_supervisor([]) as ended:
        whose.append(ended)
    spec = ChildSpec("a", Waits, ("handle_call", AnySupervisor.wait_stopped, seen, whose), name="a")
    async with open_supervisor([spec]) as sup:
        await sup.name("a").call("wait")
    assert seen == []


@pytest.mark.covers("S56")
async def test_a_root_inside_a_child_may_be_stopped_by_that_child() -> None:
    notes: Notes = []

    async def holds(*, task_status: ChildStatus) -> None:
        task_status.started()
        async with open_supervisor([player("b", notes)], name="inside") as own:
            await own.stop()
        with pytest.raises(WouldDeadlock):
            await current_actor().supervisor.stop()
        notes.append("done")
        await trio.sleep_forever()

    async with open_supervisor([ChildSpec("a", holds)]):
        await settled()
    assert notes == ["+b", "-b", "done"]


@pytest.mark.covers("S56")
async def test_a_task_of_a_grandchilds_nursery_may_ask_the_root_that_waits_for_its_start() -> None:
    answers: list[object] = []

    class Asks(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.ask)
            await settled()

        async def ask(self) -> None:
            answers.append((await whose[0].count_children()).active)

    whose: list[AnySupervisor] = []
    async with open_supervisor() as sup:
        whose.append(sup)
        await sup.start_child(supervisor_spec("s", [ChildSpec("a", Asks)]))
        await settled()
    assert answers == [1]


@pytest.mark.covers("S56")
async def test_a_grandchild_that_asks_its_grandparent_in_terminate_is_refused(
    autojump_clock: MockClock,
) -> None:
    class Asks(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            with pytest.raises(WouldDeadlock):
                await whose[0].which_children()
            seen.append("refused")

    seen: list[str] = []
    whose: list[AnySupervisor] = []
    async with open_supervisor([supervisor_spec("s", [ChildSpec("a", Asks)])]) as sup:
        whose.append(sup)
        await sup.terminate_child("s")
    assert seen == ["refused"]
    assert trio.current_time() == 0
