"""How far a request came is on every failure: each place where it can stand, times each cause of its end."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import attrs
import msgspec
import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import proctor
from proctor.actors import errors as e
from proctor.actors.delivery import STAGES, Delivery, Sent, Stage
from proctor.actors.error_kinds import is_retryable
from proctor.actors.gateways.http.problems import problem_of
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import ask, stream
from proctor.actors.serving.agent_tools import CallPaths, failure
from proctor.actors.serving.pool import Pool, Pools
from proctor.actors.serving.sessions import Sessions
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import MemoryTransport, PeerStreams
from proctor.cli.ui.renderers import answer_record
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import ExitStatus
from proctor.runtime.processes.process_errors import CwdMissing, PipeFailed
from tests.actors.far_end import agent_of, plan_of
from tests.actors.spoken import spoken_plan
from tests.protocols.lines import ASKED, INIT, assistant, delta, reply

Cause = Literal["deadline", "crash", "silence", "stop"]
MISLEADING = b"warning: could not find bubblewrap on PATH\n"
TOOL = assistant({"type": "tool_use", "id": "c1", "name": "Read", "input": {}})
STOOD = 20.0
"""Virtual seconds after which a request stands where its scene leaves it."""


@attrs.define(eq=False)
class Peer:
    """Says `frames` to a prompt and no more. It dies with status 3 when `die` is set. `ends`: it closes its output first."""

    frames: tuple[bytes, ...] = ()
    greets: bool = True
    interruptible: bool = True
    ends: bool = False
    die: trio.Event = attrs.field(factory=trio.Event)

    async def live(self, side: PeerStreams) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._talk, side)
            await self.die.wait()
            side.complain(MISLEADING)
            nursery.cancel_scope.cancel("it dies")
        return 3

    async def _talk(self, side: PeerStreams) -> None:
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            subtype = frame.get("request", {}).get("subtype")
            if subtype == "interrupt" and not self.interruptible:
                continue
            if frame["type"] == "control_request" and self.greets:
                await side.send_all(reply(frame["request_id"], pid=1))
            if subtype == "interrupt":
                await side.send_all(CUT)
            elif frame["type"] == "user":
                for out in self.frames:
                    await side.send_all(out)
                if self.ends:
                    side.end_output()


CUT = json.dumps(
    {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "terminal_reason": "aborted_streaming",
        "session_id": "s",
        "num_turns": 1,
    }
).encode() + b"\n"  # fmt: skip

SAID = (INIT, delta("so "), delta("far"))


@attrs.frozen
class Scene:
    """How a request is brought to a stage. `before` is asked first; `interrupt`: it is told to end when it stands."""

    peer: Callable[[], Peer]
    text: str = ""
    before: bool = False
    interrupt: bool = False
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


SCENES: Mapping[Stage, Scene] = {
    "queued": Scene(partial(Peer, SAID), before=True),
    "sent": Scene(Peer),
    "streaming": Scene(partial(Peer, SAID), "so far"),
    "tool": Scene(partial(Peer, (*SAID, TOOL)), "so far"),
    "question": Scene(
        partial(Peer, (*SAID, ASKED)), "so far", options={"permission": "ask", "approval_deadline": 900.0}
    ),
    "interrupting": Scene(partial(Peer, SAID, interruptible=False), "so far", interrupt=True),
}
"""Stage → its scene on a held agent. `starting`, `parked`, `sending` and `closing` come by other ways, below."""

CELLS = [
    *itertools.product(SCENES, get_args(Cause)),
]


def expected(stage: Stage, cause: Cause) -> type[Exception]:
    """The rule of the table: what was never sent is safe to repeat, and says so by its type."""
    if cause == "deadline":
        return proctor.AskNotSent if STAGES[stage] == "no" else proctor.AskInterrupted
    return proctor.NotExecuted if STAGES[stage] == "no" else proctor.MaybeExecuted


def unbounded(stage: Stage, cause: Cause) -> bool:
    """A request in the queue outlives the process before it; one at an open question is not silent."""
    return (stage, cause) in {("queued", "crash"), ("queued", "silence"), ("question", "silence")}


async def failed(ask: Callable[[], Awaitable[Answer]]) -> Exception:
    """What the request fails with."""
    try:
        answer = await ask()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is looked at
        return error
    raise AssertionError(f"it did not fail: {answer}")


@pytest.mark.parametrize(("stage", "cause"), [cell for cell in CELLS if not unbounded(*cell)])
async def test_every_failure_says_how_far_the_request_came(
    stage: Stage, cause: Cause, autojump_clock: MockClock
) -> None:
    scene, peer = SCENES[stage], SCENES[stage].peer()
    options = {"silence": 40.0 if cause == "silence" else 5000.0, "tool_silence": 40.0, **scene.options}
    plan = spoken_plan(peer.live, **cast("Any", options))
    spec = agent_spec("agent", plan, {"restart": "temporary"})
    found = list[Exception]()
    async with proctor.open_supervisor([spec]) as sup, trio.open_nursery() as nursery:
        agent = sup.agent("agent")

        async def ask(prompt: str, timeout: float | None) -> None:
            found.append(await failed(partial(agent.ask, prompt, timeout=timeout)))

        if scene.before:
            nursery.start_soon(ask, "before", None)
            await trio.lowlevel.checkpoint()
        nursery.start_soon(ask, "ours", STOOD if cause == "deadline" else None)
        await trio.sleep(STOOD / 2)
        if scene.interrupt:
            nursery.start_soon(agent.interrupt)
        await trio.sleep(1 if cause == "crash" else STOOD)
        if cause == "crash":
            peer.die.set()
        elif cause == "silence":
            await trio.sleep(100)
        else:
            peer.interruptible = (
                False  # else the turn ends with an answer, which says that it was interrupted
            )
            await sup.stop()
    [error] = [error for error in found if type(error) is expected(stage, cause)]
    delivery = e.delivery_of(error)
    assert delivery is not None
    assert (delivery.stage, delivery.sent, delivery.text) == (stage, STAGES[stage], scene.text)
    assert delivery.is_repeatable == is_retryable(error) == isinstance(error, proctor.NotExecuted)
    if cause == "deadline":
        assert delivery.elapsed == pytest.approx(STOOD, abs=0.01)
    if cause == "crash":
        assert (delivery.code, delivery.signal, delivery.stderr) == (3, None, MISLEADING.decode())
        assert cast("proctor.MaybeExecuted", error).exit == ExitStatus(3)
        assert str(error).startswith(
            "agent ended in mid-turn (crashed): its process ended with exit status 3; stderr ends"
        )


def test_each_stage_has_its_cells_or_a_test_of_its_own() -> None:
    elsewhere = {"starting", "parked", "sending", "closing"}
    assert {*SCENES} | elsewhere == {*STAGES} == {*get_args(Stage)}
    assert {*STAGES.values()} == {*get_args(Sent)}


async def test_a_request_that_a_budget_holds_back_is_parked_and_was_never_sent(
    autojump_clock: MockClock,
) -> None:
    plan = spoken_plan(budget=proctor.Budget(0.1, 86400))
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        agent = sup.agent("agent")
        assert (await agent.ask("costs $0.5")).ok
        with pytest.raises(proctor.AskNotSent) as raised:
            await agent.ask("one more", timeout=60)
    assert raised.value.delivery is not None
    assert (raised.value.delivery.stage, raised.value.delivery.sent) == ("parked", "no")


@asynccontextmanager
async def _never() -> AsyncGenerator[Any]:
    await trio.sleep_forever()
    yield None


async def test_a_request_whose_process_does_not_get_ready_is_starting(autojump_clock: MockClock) -> None:
    plan = attrs.evolve(spoken_plan(mode="oneshot"), reach=partial(MemoryTransport, _never, "nowhere"))
    found = [await failed(partial(ask, plan, "x", timeout=3))]
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        found.append(await failed(partial(sup.agent("agent").ask, "x", timeout=3)))
    for error in found:
        assert type(error) is proctor.AskNotSent
        assert (error.delivery.stage, error.delivery.sent) == ("starting", "no")  # type: ignore[union-attr]


async def test_a_process_that_closes_its_output_and_stays_is_closing(autojump_clock: MockClock) -> None:
    plan = spoken_plan(Peer(SAID, ends=True).live)
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        with pytest.raises(proctor.MaybeExecuted) as raised:
            await sup.agent("agent").ask("x")
    assert raised.value.delivery is not None
    assert (raised.value.delivery.stage, raised.value.delivery.text) == ("closing", "so far")


async def test_a_prompt_that_is_cut_in_the_middle_may_have_been_sent(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, [{"reply": "ok"}])
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        guard = (await agent.status()).pid or 0
        [program] = _children(guard)
        os.kill(program, signal.SIGSTOP)
        async with agent.stream("x" * 2_000_000) as turn:
            while turn.delivery.stage != "sending":  # noqa: ASYNC110
                await trio.sleep(0.01)
            os.kill(program, signal.SIGKILL)
            with pytest.raises(proctor.MaybeExecuted) as raised:
                await turn.finish()
    found = raised.value.delivery
    assert found is not None
    assert (found.stage, found.sent, found.pid, found.signal) == ("sending", "unknown", program, "SIGKILL")
    assert raised.value.exit == ExitStatus(signal=9)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# -- one rule for deadlines, held or not


@pytest.mark.parametrize("interruptible", [True, False])
async def test_a_deadline_is_the_same_for_a_run_a_pool_and_an_agent(
    interruptible: bool, autojump_clock: MockClock
) -> None:
    plan = partial(_plan, interruptible)
    pool = Pool("claude", limit=1)
    async with proctor.open_supervisor([agent_spec("agent", plan(), {})]) as sup:
        ways: Sequence[Callable[[], Awaitable[Answer]]] = (
            partial(ask, plan(), "x", timeout=7),
            partial(pool.run, plan(), "x", timeout=7),
            partial(sup.agent("agent").ask, "x", timeout=7),
        )
        found = [await failed(way) for way in ways]
    for error in found:
        assert type(error) is proctor.AskInterrupted
        assert error.acknowledged == interruptible
        assert isinstance(error.delivery, Delivery)
        assert (error.delivery.stage, error.delivery.text) == ("streaming", "so far")
        assert str(error).startswith("agent did not finish the turn within 7 s; it was interrupted")


def _plan(interruptible: bool) -> Plan:
    return spoken_plan(Peer(SAID, interruptible=interruptible).live)


@pytest.mark.covers("R045")
async def test_who_reads_a_late_run_finds_the_outcome_with_what_had_streamed(
    autojump_clock: MockClock,
) -> None:
    async with stream(_plan(True), "x", timeout=7) as live:
        events = [event async for event in live]
    assert [type(event) for event in events][-1] is v.Exited
    assert live.answer.outcome == "deadline"
    assert live.answer.delivery is not None
    assert (live.answer.delivery.text, live.answer.delivery.stage) == ("so far", "streaming")


async def test_a_stream_of_an_agent_has_a_deadline_too(autojump_clock: MockClock) -> None:
    seen = list[v.AnyEvent]()
    async with proctor.open_supervisor([agent_spec("agent", _plan(True), {})]) as sup:
        async with sup.agent("agent").stream("x", timeout=7) as turn:
            while not isinstance(event := await anext(turn), v.TextDelta) or event.text != "far":
                seen.append(event)
            seen.append(event)
            with pytest.raises(proctor.AskInterrupted):
                await anext(turn)
        assert turn.answer.outcome == "interrupted"  # the CLI's word, which came after the deadline
    assert [event.text for event in seen if isinstance(event, v.TextDelta)] == ["so ", "far"]


# -- what is not a turn's own end


async def test_a_failed_answer_has_its_delivery_and_a_good_one_has_none(
    autojump_clock: MockClock,
) -> None:
    async with proctor.open_supervisor([agent_spec("agent", spoken_plan(), {})]) as sup:
        agent = sup.agent("agent")
        good = await agent.ask("hi")
        async with agent.stream("hang") as turn:
            await trio.sleep(1)
            await agent.interrupt()
            cut = await turn.finish()
    assert (good.ok, good.delivery) == (True, None)
    assert cut.outcome == "interrupted"
    assert cut.delivery is not None
    assert cut.delivery.sent == "yes"


async def test_the_errors_of_a_start_say_that_nothing_was_sent(tmp_path: Path) -> None:
    refused = await failed(
        partial(ask, plan_of(tmp_path, resume="7e0f7f5e-7b5b-4d8e-8f3c-0e8a7a0f5f11"), "hi")
    )
    assert isinstance(refused, proctor.StartRefused)
    gone = CwdMissing("gone", stage="spawn", argv0="x")
    for error in (refused, gone, proctor.NoProc("a")):
        delivery = e.delivery_of(error)
        assert delivery is not None
        assert delivery.is_repeatable
    assert e.delivery_of(ValueError("of the caller's own")) is None


async def test_a_place_that_did_not_come_free_in_time_says_where_the_request_stood(
    autojump_clock: MockClock,
) -> None:
    pool = Pool("claude", limit=1)
    async with pool.slot(timeout=None):
        with pytest.raises(proctor.PoolTimeout) as raised:
            await pool.run(spoken_plan(), "x", timeout=5)
    assert raised.value.delivery == Delivery(sent="no", stage="queued", elapsed=5.0)


@asynccontextmanager
async def _sessions(folder: Path) -> AsyncGenerator[Sessions]:
    async with Sessions(folder, limit=1) as sessions:
        yield sessions


async def test_a_session_that_cannot_be_held_says_that_nothing_was_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def hold(id: str, sessions: Sessions, timeout: float | None = None) -> Answer:
        async with sessions.hold(id, timeout=timeout):
            raise AssertionError("it was held")

    async def keep(sessions: Sessions, task_status: trio.TaskStatus[None]) -> None:
        async with sessions.hold("mine"):
            task_status.started()
            await trio.sleep_forever()

    closed = Sessions(tmp_path / "closed")
    async with _sessions(tmp_path / "a") as sessions, trio.open_nursery() as nursery:
        await nursery.start(keep, sessions)
        found = [
            await failed(partial(hold, "mine", sessions, 5.0)),
            await failed(partial(hold, "other", sessions)),
            await failed(partial(hold, "mine", closed)),
        ]
        nursery.cancel_scope.cancel()
    for error, elapsed in zip(found, (5.0, 0.0, 0.0), strict=True):
        assert isinstance(error, proctor.ResourceUnavailable)
        assert error.delivery is not None
        assert (error.delivery.sent, error.delivery.stage) == ("no", "queued")
        assert error.delivery.elapsed == pytest.approx(elapsed)


async def test_a_session_is_given_back_whatever_ends_its_block(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with _sessions(tmp_path / "a") as sessions:
        for id in ("mine", None):
            with pytest.raises(ZeroDivisionError):
                async with sessions.hold(id):
                    raise ZeroDivisionError
            with trio.move_on_after(1) as scope:
                async with sessions.hold(id):
                    await trio.sleep_forever()
            assert scope.cancelled_caught
        async with sessions.hold("mine", timeout=1):
            assert len(sessions) == 1


async def test_whatever_keeps_a_request_from_being_sent_has_a_record_of_its_own(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    pools, pool = Pools(limit=1), Pool("claude", limit=1)
    async with trio.open_nursery() as nursery:
        await nursery.start(pools.serve)
        await nursery.start(pool.serve)
        nursery.cancel_scope.cancel()
    spent = spoken_plan(budget=proctor.Budget(0.1, 3600))
    with proctor.AccountBook():
        assert (await ask(spent, "x")).ok
        stages: list[tuple[Exception, Stage]] = [
            (await failed(partial(ask, spent, "x", timeout=9)), "parked"),
            (await failed(partial(pools.run, spoken_plan(), "x")), "queued"),
            (await failed(partial(pool.run, spoken_plan(), "x")), "queued"),
        ]
    async with proctor.open_supervisor([agent_spec("agent", spoken_plan(), {})]) as sup:
        stages.append((await failed(partial(sup.agent("nobody").ask, "x")), "queued"))
    kinds = (proctor.BudgetExceeded, proctor.ResourceUnavailable, proctor.ResourceUnavailable, proctor.NoProc)
    for (error, stage), kind in zip(stages, kinds, strict=True):
        assert isinstance(error, e.RECORDED)
        assert isinstance(error, kind)
        assert isinstance(error.delivery, Delivery)
        assert (error.delivery.sent, error.delivery.stage, error.delivery.pid) == ("no", stage, None)


async def test_a_program_that_cannot_be_started_says_so_on_its_own_error(tmp_path: Path) -> None:
    plan, pool = plan_of(tmp_path).at(tmp_path / "gone"), Pool("scripted", limit=1)
    for error in [await failed(partial(ask, plan, "x")), await failed(partial(pool.run, plan, "x"))]:
        assert isinstance(error, CwdMissing)
        assert isinstance(error.delivery, Delivery)
        assert (error.delivery.sent, error.delivery.stage) == ("no", "starting")
        assert error.delivery.pid is error.pid is None  # the guard's is nobody's business
        assert e.delivery_of(error) is error.delivery


async def test_an_output_that_is_lost_in_mid_turn_says_that_the_prompt_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, broken, programs = os.read, set[int](), list[int]()

    def read(fd: int, size: int) -> bytes:
        if fd in broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = real(fd, size)
        if b"begun" in data:
            broken.add(fd)
            programs.extend(pid for guard in _children(os.getpid()) for pid in _children(guard))
        return data

    plan = plan_of(tmp_path, [{"say": "begun"}, {"say": "more", "delay": 0.3}, {"fault": "hang"}])
    with monkeypatch.context() as patched:
        patched.setattr(os, "read", read)
        error = await failed(partial(ask, plan, "x", timeout=20))
    assert isinstance(error, PipeFailed)
    assert isinstance(error.delivery, Delivery)
    found = error.delivery
    assert (found.sent, found.stage, found.text) == ("yes", "streaming", "begun")
    assert found.pid == error.pid
    assert found.pid in programs
    assert not found.is_repeatable


async def test_the_pid_is_the_command_lines_own_and_the_recording_is_named(tmp_path: Path) -> None:
    script = [{"say": "begun"}, {"fault": "exit:3"}]
    spec = agent_of(tmp_path, script, record=tmp_path / "runs")
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        guard = (await agent.status()).pid or 0
        [program] = _children(guard)
        with pytest.raises(proctor.MaybeExecuted) as raised:
            await agent.ask("x")
    found = raised.value.delivery
    assert found is not None
    assert (found.pid, found.code, found.text) == (program, 3, "begun")
    assert program != guard
    assert found.recording is not None
    assert found.recording.parent == tmp_path / "runs"
    assert found.session_id


async def test_text_that_is_too_long_is_cut_and_says_so(autojump_clock: MockClock) -> None:
    long = (INIT, *(delta("x" * 1000) for _ in range(150)))
    error = await failed(partial(ask, spoken_plan(Peer(long).live), "x", timeout=5))
    assert isinstance(error, proctor.AskInterrupted)
    assert error.delivery is not None
    assert (len(error.delivery.text), error.delivery.truncated) == (100_000, ("text",))


# -- what a caller elsewhere sees


def test_gateways_and_json_show_the_same_record() -> None:
    delivery = Delivery(
        sent="yes",
        stage="tool",
        elapsed=2.0,
        pid=7,
        exit=ExitStatus(signal=9),
        text="so far",
        truncated=("text",),
    )
    error = proctor.MaybeExecuted("a", "killed_by_system", "it was killed by SIGKILL", delivery=delivery)
    facts = delivery.facts()
    assert (facts["signal"], facts["code"]) == ("SIGKILL", None)
    assert msgspec.json.decode(msgspec.json.encode(problem_of(error).record))["delivery"] == facts
    assert failure("a", error, CallPaths()).facts["delivery"] == facts
    answer = Answer(agent="a", outcome="deadline", delivery=delivery)
    assert answer_record(answer, None)["delivery"] == facts
