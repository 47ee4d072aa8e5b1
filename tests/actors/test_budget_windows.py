"""What a budget over many turns at once lets through, and what is left of its window after a restart of the host."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import BudgetExceeded
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import ask
from proctor.actors.serving.pool import Pool
from proctor.actors.serving.retry import attempted
from proctor.actors.serving.sessions import Sessions
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import PeerStreams, in_memory
from proctor.protocols.vocabulary import Usage
from tests.actors.spoken import COUNTED, spoken_plan
from tests.protocols.lines import INIT, ended, line, reply, text

HOUR, DAY = 3600.0, 86400.0
FLEET = 20
NOW = 1_795_000_000.0


class Costly:
    """Far ends whose turns last ten seconds and cost `usd` each; `spent` and `most` are of all of them together. What is in
    `first` comes before the answer of a turn."""

    def __init__(self, usd: float = 0.5, first: Callable[[str], Any] | None = None) -> None:
        self.usd = usd
        self.spent = 0.0
        self.turns = self.running = self.most = 0
        self._first = first

    async def live(self, side: PeerStreams) -> int | None:
        total = 0.0
        async for frame_line in side.lines():
            frame: dict[str, Any] = json.loads(frame_line)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
                if frame["request"]["subtype"] == "end_session":
                    return None
                continue
            prompt = frame["message"]["content"]
            await side.send_all(INIT)
            total += self.usd
            if (status := await self._turn(side, prompt)) is not None:
                return status
            await side.send_all(
                ended(total_cost_usd=total, subtype="success", is_error=False, result="x", usage=COUNTED)
            )
        return None

    async def _turn(self, side: PeerStreams, prompt: str) -> int | None:
        self.turns += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self._first is not None and (status := await self._first(prompt)) is not None:
                message = {"role": "assistant", "id": "m1", "content": [text("Half")], "usage": COUNTED}
                await side.send_all(line(type="assistant", session_id="s", message=message))
                return int(status)
            await trio.sleep(10)
        finally:
            self.running -= 1
        self.spent += self.usd
        return None

    def plan(self, name: str = "agent", **options: Unpack[AgentOptions]) -> Plan:
        return attrs.evolve(spoken_plan(**options), name=name, reach=in_memory(self.live, name="costly"))


async def _queued_all(costly: Costly, budget: Budget) -> None:
    specs = [agent_spec(f"a{n}", costly.plan(f"a{n}"), {}) for n in range(FLEET)]
    async with proctor.open_supervisor(specs, budget=budget) as sup:
        for spec in specs:
            await sup.agent(spec.id).queue("work")
        await trio.sleep(500)


async def _run_all(costly: Costly, budget: Budget) -> None:
    async def one(n: int) -> None:
        try:
            await pool.run(costly.plan(f"a{n}"), "work", timeout=500)
        except BudgetExceeded as error:
            refused.append(error)

    pool, refused = Pool("claude", limit=FLEET), list[BudgetExceeded]()
    with AccountBook(budget=budget):
        async with trio.open_nursery() as nursery:
            for n in range(FLEET):
                nursery.start_soon(one, n)


fleets = pytest.mark.parametrize("fleet", [_queued_all, _run_all], ids=["held", "pool"])


@fleets
@pytest.mark.parametrize(("usd", "spent"), [(1.0, 1.0), (1.2, 1.5), (0.1, 0.5)])
async def test_a_fleet_overshoots_its_budget_by_one_turn_at_most(
    fleet: Any, usd: float, spent: float, autojump_clock: MockClock
) -> None:
    costly = Costly()
    await fleet(costly, Budget(usd, DAY))
    assert costly.spent == spent


@fleets
async def test_turns_run_side_by_side_once_it_is_known_what_one_costs(
    fleet: Any, autojump_clock: MockClock
) -> None:
    costly = Costly()
    await fleet(costly, Budget(100.0, DAY))
    assert (costly.turns, costly.most) == (FLEET, FLEET - 1)


class Dearer(Costly):
    """A first turn for a cent; those after it are fifty times as dear, and last as many seconds more as they are asked."""

    def __init__(self) -> None:
        super().__init__(usd=0.01, first=self._longer)

    async def _longer(self, prompt: str) -> None:
        await trio.sleep(float(prompt))

    async def begin(self, ask: Callable[[], Awaitable[object]]) -> None:
        await ask()
        self.usd = 0.5


async def test_once_a_turn_was_dearer_than_all_before_it_none_begins_beside_those_that_run(
    autojump_clock: MockClock,
) -> None:
    dearer = Dearer()
    specs = [agent_spec(f"a{n}", dearer.plan(f"a{n}"), {}) for n in range(FLEET)]
    async with proctor.open_supervisor(specs, budget=Budget(1.0, DAY)) as sup:
        await dearer.begin(partial(sup.agent("a0").ask, "0"))
        for n, seconds in enumerate(("0", "8", "8", "8", "8"), 1):  # all of them for a cent, as it seems
            await sup.agent(f"a{n}").queue(seconds)
        await trio.sleep(13)  # the first of them has cost 50 cents, and so may the others
        for n in range(6, FLEET):
            await sup.agent(f"a{n}").queue("0")
        await trio.sleep(500)
    assert dearer.turns == 6
    assert dearer.spent == pytest.approx(2.51)


async def test_runs_that_waited_for_a_place_of_the_pool_ask_their_budget_again(
    autojump_clock: MockClock,
) -> None:
    dearer, pool, refused = Dearer(), Pool("claude", limit=5), list[BudgetExceeded]()

    async def one(n: int) -> None:
        try:
            await pool.run(dearer.plan(f"a{n}"), "0", timeout=500)
        except BudgetExceeded as error:
            refused.append(error)

    with AccountBook(budget=Budget(1.0, DAY)):
        await dearer.begin(partial(pool.run, dearer.plan(), "0"))
        async with trio.open_nursery() as nursery:
            for n in range(FLEET):
                nursery.start_soon(one, n)
    assert dearer.turns == 1 + 5
    assert dearer.spent == pytest.approx(2.51)
    assert len(refused) == FLEET - 5
    assert pool.statistics().used == 0


async def test_a_run_that_waits_for_its_budget_takes_no_place_from_others(
    autojump_clock: MockClock,
) -> None:
    costly, pool, ended = Costly(), Pool("claude", limit=1), list[str]()

    async def one(name: str, budget: Budget) -> None:
        await pool.run(costly.plan(name, budget=budget), "work", timeout=None)
        ended.append(name)

    async with trio.open_nursery() as nursery:
        await one("spent", Budget(0.1, HOUR))
        nursery.start_soon(one, "spent", Budget(0.1, HOUR))
        await trio.sleep(60)
        await one("other", Budget(10, HOUR))
    assert ended == ["spent", "other", "spent"]


@fleets
async def test_a_budget_that_only_warns_holds_back_no_turn(fleet: Any, autojump_clock: MockClock) -> None:
    costly = Costly()
    await fleet(costly, Budget(1.0, DAY, then="warn"))
    assert (costly.turns, costly.most) == (FLEET, FLEET)


@pytest.mark.parametrize("inner", ["held", "run"])
async def test_a_turn_that_waits_for_another_agents_leaves_it_room(
    inner: str, autojump_clock: MockClock
) -> None:
    async def ask_another(prompt: str) -> None:
        if inner == "held":
            await sup.agent("inner").ask("x")
        else:
            await proctor.ask(agent_spec("inner", plain.plan("inner"), {}), "x")

    plain, outer = Costly(), Costly(first=ask_another)
    specs = [agent_spec("inner", plain.plan("inner"), {}), agent_spec("outer", outer.plan("outer"), {})]
    with trio.fail_after(100):
        async with proctor.open_supervisor(specs, budget=Budget(5.0, DAY)) as sup:
            answer = await sup.agent("outer").ask("go")
    assert (answer.ok, plain.turns, outer.turns) == (True, 1, 1)


async def test_what_a_turn_held_is_free_again_when_its_process_dies(autojump_clock: MockClock) -> None:
    async def die(prompt: str) -> int | None:
        return 3 if prompt == "die" else None

    costly = Costly(first=die)
    spec = agent_spec("agent", costly.plan(), {})
    with trio.fail_after(100):
        async with proctor.open_supervisor([spec], budget=Budget(5.0, DAY)) as sup:
            with pytest.raises(proctor.MaybeExecuted):
                await sup.agent("agent").ask("die")
            assert (await sup.agent("agent").ask("live")).ok


# -- attempts


async def _dying_once(tmp_path: Path) -> Costly:
    died = False

    async def die_once(prompt: str) -> int | None:
        nonlocal died
        died, status = True, None if died else 3
        return status

    return Costly(first=die_once)


async def test_the_answer_of_a_repeated_run_has_the_tokens_and_attempts_of_all(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    costly = await _dying_once(tmp_path)
    answer = await attempted(partial(ask, costly.plan(), "x"))
    assert (answer.ok, answer.attempts) == (True, 2)
    assert (answer.cost_usd, answer.usage) == (0.5, Usage(6, 10, 0, 0))


async def test_the_answer_of_a_request_sent_again_has_the_tokens_of_the_process_that_died(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    costly = await _dying_once(tmp_path)
    spec = agent_spec("agent", costly.plan(on_crash="retry"), {})
    async with proctor.open_supervisor([spec]) as sup:
        answer = await sup.agent("agent").ask("x")
        status = await sup.agent("agent").status()
    assert (answer.ok, answer.cost_usd, answer.usage) == (True, 0.5, Usage(6, 10, 0, 0))
    assert (status.turns, status.cost_usd) == (1, 0.5)


# -- over restarts of the host


class Wall:
    """The wall clock, which may be set; the loop's goes on as it does."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return NOW + self.ahead + trio.current_time()


async def _spend(plan: Plan, path: Path, wall: Wall) -> float | None:
    """One life of a host: None where its turn was asked, else the seconds until it may be."""
    with AccountBook(path, wall=wall):
        try:
            await Pool("claude").run(plan, "x", timeout=60)
        except BudgetExceeded as error:
            return error.seconds
    return None


@pytest.mark.parametrize(
    ("pause", "set_by", "seconds"),
    [
        (0.0, 0.0, HOUR),
        (1000.0, 0.0, 2600.0),
        (HOUR, 0.0, None),
        (1000.0, -DAY, HOUR),  # it was set back: as if it were spent just now
        (0.0, 2 * HOUR, None),
    ],
)
async def test_a_window_goes_on_in_the_next_life_of_its_host(
    pause: float, set_by: float, seconds: float | None, tmp_path: Path, autojump_clock: MockClock
) -> None:
    plan, wall = Costly().plan(budget=Budget(0.4, HOUR)), Wall()
    assert await _spend(plan, tmp_path / "budgets.json", wall) is None
    await trio.sleep(pause)
    wall.ahead = set_by
    left = await _spend(plan, tmp_path / "budgets.json", wall)
    assert left == (None if seconds is None else pytest.approx(seconds, abs=1))


async def test_a_clock_that_is_set_while_the_host_lives_moves_no_window(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    plan, wall, pool = Costly().plan(budget=Budget(0.4, HOUR)), Wall(), Pool("claude")
    with AccountBook(tmp_path / "budgets.json", wall=wall):
        await pool.run(plan, "x")
        for ahead in (5 * DAY, -5 * DAY):
            wall.ahead = ahead
            with pytest.raises(BudgetExceeded, match=r"has spent \$0\.5 of \$0\.4"):
                await pool.run(plan, "x", timeout=60)
        await trio.sleep(HOUR)
        assert (await pool.run(plan, "x")).ok


@pytest.mark.parametrize(
    "file", [b"", b'{"version":1,"windows":{"agent":{"sp', b"[]", b"\xff\xfe", b'{"version":"x"}']
)
async def test_a_file_that_is_torn_is_one_line_and_is_written_anew(
    file: bytes, tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    path, plan = tmp_path / "budgets.json", Costly().plan(budget=Budget(0.4, HOUR))
    path.write_bytes(file)
    assert await _spend(plan, path, Wall()) is None
    lines = [r.getMessage() for r in caplog.records if str(path) in r.getMessage()]
    assert len(lines) == 1
    assert "is not a spending file" in lines[0]
    assert await _spend(plan, path, Wall()) == pytest.approx(HOUR, abs=60)


async def test_a_file_of_a_later_version_is_one_line_and_stays_as_it_is(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    path, later = tmp_path / "budgets.json", b'{"version": 7, "windows": []}'
    path.write_bytes(later)
    assert await _spend(Costly().plan(budget=Budget(0.4, HOUR)), path, Wall()) is None
    lines = [r.getMessage() for r in caplog.records if str(path) in r.getMessage()]
    assert len(lines) == 1
    assert "a later version of proctor wrote it (7, this one knows 1)" in lines[0]
    assert path.read_bytes() == later


async def test_a_file_that_another_program_has_open_is_one_line(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    path, plan, pool = tmp_path / "budgets.json", Costly().plan(budget=Budget(0.4, HOUR)), Pool("claude")
    with AccountBook(path):
        await pool.run(plan, "x")
        written = path.read_bytes()
        other = AccountBook(path)
        other.window("agent", Budget(0.4, HOUR)).spend(7.0, trio.current_time())
        other.save()
        other.close()
    lines = [r.getMessage() for r in caplog.records if str(path) in r.getMessage()]
    assert [line.endswith("another program has it open") for line in lines] == [True]
    assert path.read_bytes() == written


async def test_a_place_that_refuses_the_file_is_one_line_and_the_window_holds(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    plan, pool, path = Costly().plan(budget=Budget(0.9, HOUR)), Pool("claude"), tmp_path / "file" / "b.json"
    with AccountBook(path):
        for _ in range(2):
            await pool.run(plan, "x")
        with pytest.raises(BudgetExceeded):
            await pool.run(plan, "x", timeout=60)
    lines = [r for r in caplog.records if str(path) in r.getMessage()]
    assert [line.levelno for line in lines] == [logging.WARNING]


async def test_sessions_that_are_kept_keep_the_windows_of_their_budgets(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def spend() -> float | None:
        async with Sessions(tmp_path, keep=True) as sessions, sessions.hold("s", timeout=60) as session:
            return (await session.run(plan, "x")).cost_usd

    plan = Costly().plan(budget=Budget(0.4, HOUR))
    assert await spend() == 0.5
    with pytest.raises(BudgetExceeded):
        await spend()


async def test_what_a_kept_session_has_cost_is_known_to_the_next_host(tmp_path: Path) -> None:
    from tests.actors.test_account_book import Till, till_plan

    plan, costs = till_plan(Till(), tmp_path), list[float | None]()
    for prompt in ("one", "two"):
        async with Sessions(tmp_path / "kept", keep=True) as sessions, sessions.hold("s") as session:
            costs.append((await session.run(plan, prompt)).cost_usd)
    assert costs == [0.5, 0.5]
