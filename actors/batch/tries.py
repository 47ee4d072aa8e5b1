"""One try at a task: an agent, a conversation and a request of one name, in the tree and the store of the batch.

The next host finds by that name what a try came to, and does not pay for it again. A try that was cut off is gone on with in its conversation
where the agent can, and else has ended as one that crashed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import attrs
import msgspec
import trio

from proctor.actors.batch.results import BatchTry
from proctor.actors.batch.tasks import BatchTask
from proctor.actors.batch.working_time import WorkingTime
from proctor.actors.errors import AgentError, MaybeExecuted
from proctor.actors.limits.spend_limits import SpendLimits
from proctor.actors.outcomes import OUTCOMES, Answer, Outcome
from proctor.actors.plan.plan import Plan
from proctor.actors.specs import DynamicSupervisor, agent_spec
from proctor.actors.store.backend import StoreBackend, StoreError
from proctor.actors.store.ends import answer_of_end
from proctor.protocols.lenient import decoded_or
from proctor.runtime.errors import ActorExited, NotFound, StartError
from proctor.runtime.exits import Crash, DeliveryError, NoProc
from proctor.runtime.messaging import Ref
from proctor.runtime.processes import ProcessError

KEY = "prompt"
"""The key of the one request of a try."""
ENDED, RESUMED = "batch-try", "batch-resumed"
"""The facts in the store that are the record of a try that has ended, and how many hosts have taken it up."""
INTERRUPT_TIMEOUT = 15.0
"""Seconds that an agent has to end its turn when its time is up; then its process is stopped."""
LOG_TIMEOUT = 1.0
"""Seconds for which the end of an agent's log is waited for when its request has failed."""
EXPECTED = (AgentError, ProcessError, DeliveryError, NoProc, ActorExited, StartError)
"""What a try may come to in place of an answer."""


@attrs.define(eq=False)
class Tried:
    """What a try came to, an answer or an error, and what is written down of it. `clock` is None for one that an earlier host has made."""

    came: Answer | Exception
    record: BatchTry
    clock: WorkingTime | None = None


@attrs.frozen
class TryPlace:
    """The tree and the store of a batch, and the folder of its recordings."""

    supervisor: DynamicSupervisor
    store: StoreBackend
    recordings: Path | None


class Try:
    """The try `name` at `task`, with `plan`."""

    def __init__(self, place: TryPlace, name: str, task: BatchTask, plan: Plan) -> None:
        self._place = place
        self._name = name
        self._task = task
        self._plan = plan
        self._resumed = 0
        self._recording: str | None = None

    async def find(self) -> Tried | None:
        """What it came to with an earlier host; None where it has not ended. Raises `StoreError`."""
        kept = await self._place.store.requests(agent=self._name)
        facts: Mapping[str, str] = (await self._place.store.facts()).get(self._name, {})
        self._resumed = int(facts.get(RESUMED, "0")) + any(one.sent is not None for one in kept)
        end = next((one.end for one in kept if one.end is not None and one.holds_key), None)
        if end is None:
            return None
        came: Answer | Exception
        try:
            came = answer_of_end(end)
        except AgentError as error:
            came = _as_answer(self._name, error)
        written = decoded_or(None, BatchTry, facts.get(ENDED, "").encode())
        return Tried(came, written or self._record(came, None))

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier host had sent its prompt."""
        return self._resumed > 0

    async def run(self, cwd: Path, limits: SpendLimits) -> Tried:
        """Ask in the folder `cwd`, within the budget `limits`. Raises `BudgetExceeded` when that is spent before it could begin, and
        `StoreError`."""
        begun = trio.current_time()
        # not waited for where the whole budget is spent: it does not come back
        await limits.wait_for_room(parks=False)
        waited = trio.current_time() - begun
        with limits.holding():
            if self._resumed:
                await self._place.store.put(self._name, RESUMED, str(self._resumed))
            clock = WorkingTime(self._task.timeout)
            came = await self._ask(cwd, clock)
            record = self._record(came, clock)
            # before the room is given back; its alarms say what the end of the batch says
            list(limits.spend(record.cost_usd, whole=isinstance(came, Answer) and came.ok))
        clock.waiting += waited
        with suppress(StoreError):  # its end is kept already: only its times would be missing
            await self._place.store.put(self._name, ENDED, msgspec.json.encode(record).decode())
        return Tried(came, record, clock)

    async def _ask(self, cwd: Path, clock: WorkingTime) -> Answer | Exception:
        """Start the agent, ask, and stop it."""
        record = self._plan.workplace.record or self._place.recordings
        workplace = attrs.evolve(self._plan.workplace, cwd=cwd, record=record)
        plan = attrs.evolve(self._plan, name=self._name, workplace=workplace)
        supervisor = self._place.supervisor
        try:
            ref = await supervisor.start_child(agent_spec(self._name, plan, {"restart": "temporary"}))
        except EXPECTED as error:
            return _as_answer(self._name, error)
        came = await self._within_time(ref, clock)
        clock.stop()
        await self._terminate(ref)
        late = f"it worked longer than {self._task.timeout:g} s"
        if not clock.is_over or (isinstance(came, Answer) and came.ok):
            return came
        if isinstance(came, Answer):
            return attrs.evolve(came, outcome="deadline", ending=None, error=late)
        return Answer(agent=self._name, outcome="deadline", error=late)

    async def _within_time(self, ref: Ref, clock: WorkingTime) -> Answer | Exception:
        agent = self._place.supervisor.agent(self._name)
        came: Answer | Exception

        async def expire() -> None:
            await clock.wait_over()
            await agent.interrupt(timeout=INTERRUPT_TIMEOUT)
            await trio.sleep(INTERRUPT_TIMEOUT)
            await self._terminate(ref)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, lambda: clock.follow(agent))
            nursery.start_soon(_until_gone, expire)
            try:
                self._recording = (await agent.status()).recording
                came = await agent.ask(self._task.prompt, schema=self._task.schema, key=KEY)
            except EXPECTED as error:
                # the log says how the process ended; it ends with the agent, which is not restarted
                with trio.move_on_after(LOG_TIMEOUT):
                    await clock.log_ended.wait()
                came = _as_answer(self._name, error, clock.exited)
            nursery.cancel_scope.cancel("the request has ended")
        return came

    async def _terminate(self, ref: Ref) -> None:
        with suppress(NotFound):
            await self._place.supervisor.terminate_child(ref)

    def _record(self, came: Answer | Exception, clock: WorkingTime | None) -> BatchTry:
        # the working time of a try that began with another host is not known
        working = None if clock is None or self._resumed else round(clock.seconds, 3)
        if not isinstance(came, Answer):
            return BatchTry(
                outcome=type(came).__name__,
                error=" ".join(str(came).split()),
                working=working,
                recording=self._recording,
                resumed=self._resumed,
            )
        return BatchTry(
            outcome=came.outcome,
            error=came.error,
            cost_usd=came.cost_usd,
            usage=came.usage,
            working=working,
            session_id=came.session_id,
            recording=self._recording,
            resumed=self._resumed,
        )


async def _until_gone(work: Callable[[], Awaitable[None]]) -> None:
    # an agent that has ended is what its request says
    with suppress(*EXPECTED):
        await work()


def _as_answer(name: str, error: Exception, exited: str | None = None) -> Answer | Exception:
    """The answer that stands for an agent which died in its turn: its label decides about another try, as that of a run does. `exited` is the
    label of the end of its process."""
    if isinstance(error, StartError) and isinstance(error.reason, Crash):
        cause = error.reason.error
        return _as_answer(name, cause) if isinstance(cause, Exception) else error
    if not isinstance(error, MaybeExecuted):
        return error
    text = " ".join(str(error).split())
    known = [label for label in OUTCOMES if label in (exited, error.outcome)]
    # of the two the one of its process: the agent's is "crashed" for each end that it did not ask for
    outcome = exited if exited in known else error.outcome
    return (
        Answer(agent=name, outcome=cast("Outcome", outcome), error=text, delivery=error.delivery)
        if known
        else error
    )
