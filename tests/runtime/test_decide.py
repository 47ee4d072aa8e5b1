from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.runtime import (
    Crash,
    ExitReason,
    ExitStatus,
    FinalShutdown,
    Killed,
    Normal,
    Shutdown,
    TreeShutdown,
)
from proctor.runtime.spec import Grace, Restart, StartOrder, Strategy
from proctor.runtime.supervision.decide import (
    CLASSES,
    RESTARTS,
    Action,
    Member,
    Peer,
    Window,
    after_exit,
    after_failed_restart,
    ends_supervisor,
    group_plan,
    is_final,
    is_reported,
    is_shutdown_error,
    start_groups,
    starts_beside,
)
from tests.tables import each_row

KINDS: tuple[Restart, ...] = ("permanent", "transient", "temporary")


@pytest.mark.covers("S14", "S15", "S16")
def test_the_restart_table_has_every_cell() -> None:
    assert set(RESTARTS) == set(product(KINDS, CLASSES.values()))


CRASH = Crash(ValueError())

FATES: Mapping[ExitReason, tuple[Action, Action, Action]] = {
    Normal(): ("restart", "keep", "drop"),
    Shutdown("on purpose"): ("restart", "keep", "drop"),
    ExitStatus(0): ("restart", "keep", "drop"),
    Killed(): ("restart", "restart", "drop"),
    CRASH: ("restart", "restart", "drop"),
    ExitStatus(1): ("restart", "restart", "drop"),
    ExitStatus(signal=15): ("restart", "restart", "drop"),
    FinalShutdown("bad key"): ("keep", "keep", "drop"),
    TreeShutdown("disk full"): ("terminate", "terminate", "terminate"),
}


@pytest.mark.covers("S14", "S15", "S16")
@each_row("reason", FATES, ids=str)
def test_what_becomes_of_a_child_that_ended_by_itself(reason: ExitReason) -> None:
    assert tuple(after_exit(kind, reason) for kind in KINDS) == FATES[reason]


@pytest.mark.covers("S28")
@each_row("reason", FATES, ids=str)
def test_a_restart_that_failed_is_tried_again_unless_the_child_refuses(reason: ExitReason) -> None:
    refuses = isinstance(reason, FinalShutdown | TreeShutdown)
    for kind in KINDS[:2]:
        assert after_failed_restart(kind, reason) == (after_exit(kind, reason) if refuses else "restart")


@pytest.mark.covers("S16", "S73")
@each_row("reason", FATES, ids=str)
def test_a_child_that_became_temporary_during_its_restart_is_not_tried_again(reason: ExitReason) -> None:
    assert after_failed_restart("temporary", reason) == after_exit("temporary", reason)


STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")


@pytest.mark.covers("S7")
@each_row("strategy", STRATEGIES)
@each_row("order", ["sequential", "parallel"])
def test_only_a_child_that_says_so_starts_beside_others_and_only_where_children_are_independent(
    strategy: Strategy, order: StartOrder
) -> None:
    assert starts_beside(strategy, order) == (strategy == "one_for_one" and order == "parallel")


GROUPS: Mapping[str, tuple[range, ...]] = {
    "": (),
    "s": (range(1),),
    "p": (range(1),),
    "ss": (range(1), range(1, 2)),
    "pp": (range(2),),
    "spps": (range(1), range(1, 3), range(3, 4)),
    "psp": (range(1), range(1, 2), range(2, 3)),
    "ppspp": (range(2), range(2, 3), range(3, 5)),
}


def as_orders(letters: str) -> list[StartOrder]:
    return ["parallel" if letter == "p" else "sequential" for letter in letters]


@pytest.mark.covers("S7")
@each_row("letters", GROUPS)
def test_parallel_neighbours_start_together_and_a_sequential_child_alone(letters: str) -> None:
    assert start_groups("one_for_one", as_orders(letters)) == GROUPS[letters]


@pytest.mark.covers("S7")
@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_children_that_depend_on_each_other_start_one_by_one(strategy: Strategy) -> None:
    assert start_groups(strategy, as_orders("ppspp")) == tuple(range(n, n + 1) for n in range(5))


@each_row("reason", [None, *FATES], ids=str)
def test_only_a_final_shutdown_is_final(reason: ExitReason | None) -> None:
    assert is_final(reason) == isinstance(reason, FinalShutdown)


@pytest.mark.covers("T19")
def test_exit_status_0_is_treated_as_normal() -> None:
    assert after_exit("transient", ExitStatus(0)) == "keep"
    assert after_exit("transient", ExitStatus(signal=15)) == "restart"


members_of = st.lists(
    st.builds(Member, st.uuids().map(str), st.sampled_from(KINDS), st.booleans(), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda member: member.id,
)


@pytest.mark.covers("S21", "S22", "S23", "S24")
@given(
    members=members_of,
    strategy=st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]),
    data=st.data(),
)
def test_a_group_plan_keeps_its_promises(
    members: list[Member], strategy: Strategy, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(members) - 1))
    order = [member.id for member in members]
    kind = {member.id: member.restart for member in members}
    alive = {member.id: member.alive for member in members}
    reach = {"one_for_one": {order[at]}, "one_for_all": set(order), "rest_for_one": set(order[at:])}[strategy]
    plan = group_plan(strategy, members, order[at])

    assert order[at] in plan.start  # S21
    assert {*plan.stop, *plan.drop, *plan.start} <= reach  # S22, S23
    assert list(plan.stop) == sorted(plan.stop, key=order.index, reverse=True)
    assert list(plan.start) == sorted(plan.start, key=order.index)
    assert set(plan.stop) == {id for id in reach if alive[id] and id != order[at]}
    assert set(plan.drop) == {id for id in reach if kind[id] == "temporary" and id != order[at]}  # S24
    resting = {m.id for m in members if m.final and not m.alive and m.id != order[at]}
    assert set(plan.start) == reach - set(plan.drop) - resting


@pytest.mark.covers("S30")
@given(
    gaps=st.lists(st.integers(0, 6), max_size=40),
    intensity=st.integers(0, 4),
    period=st.integers(1, 10),
)
def test_the_window_counts_what_a_plain_count_does(gaps: list[int], intensity: int, period: int) -> None:
    window, past, now = Window(intensity, float(period)), list[int](), 0
    for gap in gaps:
        now += gap
        past.append(now)
        inside = [t for t in past if now - t <= period]
        assert window.add(float(now), Killed()) == (len(inside) <= intensity)
        assert len(window.causes()) == len(inside)


@pytest.mark.covers("S30", "D1")
def test_an_entry_exactly_one_period_old_still_counts() -> None:
    window = Window(1, 5.0)
    assert window.add(0.0, Killed())
    assert not window.add(5.0, Killed())
    later = Window(1, 5.0)
    assert later.add(0.0, Killed())
    assert later.add(5.001, Killed())


@pytest.mark.covers("S30")
def test_intensity_0_allows_no_restart() -> None:
    assert not Window(0, 5.0).add(0.0, Killed())


@pytest.mark.covers("S37", "S39")
@each_row(
    ("kind", "grace", "reason", "error"),
    [
        ("permanent", 5.0, Shutdown(), False),
        ("permanent", 5.0, Normal(), True),
        ("transient", 5.0, Normal(), False),
        ("temporary", 5.0, Normal(), False),
        ("permanent", 5.0, Killed(), True),
        ("transient", 5.0, Killed(), True),
        ("permanent", "brutal_kill", Killed(), False),
        ("permanent", "brutal_kill", CRASH, True),
        ("permanent", "brutal_kill", Shutdown(), True),
        ("transient", "brutal_kill", Shutdown(), False),
        ("temporary", "brutal_kill", Normal(), False),
        ("temporary", 5.0, CRASH, True),
        ("temporary", 5.0, ExitStatus(1), True),
        ("permanent", 5.0, FinalShutdown(), False),
        ("permanent", 5.0, TreeShutdown(), False),
        ("permanent", "brutal_kill", FinalShutdown(), True),
        ("transient", "brutal_kill", FinalShutdown(), False),
        ("transient", "brutal_kill", TreeShutdown(), False),
        ("transient", 5.0, FinalShutdown(), False),
    ],
)
def test_a_stop_that_ended_otherwise_than_asked_is_an_error(
    kind: Restart, grace: Grace, reason: ExitReason, error: bool
) -> None:
    assert is_shutdown_error(kind, grace, reason) == error


@pytest.mark.covers("S19")
@each_row("kind", KINDS)
@each_row(
    "reason",
    [Normal(), Shutdown(), Killed(), CRASH, ExitStatus(1), ExitStatus(0), FinalShutdown(), TreeShutdown()],
    ids=str,
)
def test_abnormal_exits_and_those_of_permanent_children_are_reported(
    kind: Restart, reason: ExitReason
) -> None:
    clean = reason in (Normal(), Shutdown(), ExitStatus(0), FinalShutdown(), TreeShutdown())
    assert is_reported(kind, reason) == (kind == "permanent" or not clean)


@pytest.mark.covers("S59", "S60")
def test_automatic_shutdown_by_significant_ends() -> None:
    alive, down, bystander = Peer(True, True), Peer(True, False), Peer(False, True)
    assert not ends_supervisor("never", True, [])
    assert ends_supervisor("any_significant", True, [alive])
    assert not ends_supervisor("any_significant", False, [down])
    assert not ends_supervisor("all_significant", True, [alive, down])
    assert ends_supervisor("all_significant", True, [down, bystander])
    assert not ends_supervisor("all_significant", False, [])
