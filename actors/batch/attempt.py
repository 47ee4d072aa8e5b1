"""One attempt of a batch: tries at a task until one is taken as it came, then the check, and the result of that."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import attrs
import trio

from proctor.actors.batch.commands import as_text, run_command, score_of
from proctor.actors.batch.results import BatchCheck, BatchResult, BatchTimes, BatchTry, Key
from proctor.actors.batch.tasks import BatchTask
from proctor.actors.batch.tries import Tried, Try, TryPlace
from proctor.actors.batch.workspaces import BatchWorkspace, WorkspaceRefused
from proctor.actors.expense import add_usage
from proctor.actors.limits.spend_limits import SpendLimits
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.protocols.vocabulary import Usage
from proctor.runtime.processes import ProcessError
from proctor.runtime.retry import Retry

Keep = Literal["none", "failed", "all"]
"""Which workspaces are kept: of no attempt, of those that scored less than 1, or of all."""


class _SetupFailed(Exception):
    """The set-up of a workspace failed; the text says why, with the end of what it wrote."""


@attrs.frozen(kw_only=True)
class AttemptPlace:
    """What the attempts of a batch share: where tries run, the folder of their workspaces, the policy for tries, and what is kept."""

    tries: TryPlace
    work: Path
    retry: Retry
    keep: Keep
    chance: Random


@attrs.define
class _Grade:
    """What an attempt is judged by: its `score`, or the `cause` and `error` of what kept it from having one."""

    score: float = 0.0
    cause: str | None = None
    error: str | None = None
    check: BatchCheck | None = None


class Attempt:
    """The attempt of `key` at `task` with `plan`; `limits` are the budget of the batch, `digest` stands for what is asked of whom."""

    def __init__(
        self, place: AttemptPlace, key: Key, task: BatchTask, plan: Plan, limits: SpendLimits, digest: str
    ) -> None:
        self._place = place
        self._key = key
        self._task = task
        self._plan = plan
        self._limits = limits
        self._digest = digest
        self._tries: list[BatchTry] = []
        self._spent = dict.fromkeys(("starting", "waiting", "retrying", "setup", "check"), 0.0)
        agent_task = hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()[:8]
        self._slug = f"{re.sub(r'[^A-Za-z0-9_]', '_', key[0])[:20]}-{agent_task}"

    async def run(self) -> BatchResult:
        """Try until a try is taken as it came, and check that. Raises `BudgetExceeded` when the budget of the batch is spent before a try
        could begin, and `StoreError`."""
        number, retry = 1, self._place.retry
        while True:
            workspace = self._workspace(number)
            try:
                tried = await self._try(workspace)
            except (WorkspaceRefused, _SetupFailed) as error:
                return self._result(None, _Grade(cause="setup", error=str(error)), workspace)
            self._tries.append(tried.record)
            again = retry.judge(tried.came)
            pause = None if again is None else retry.pause(again, number, self._place.chance.random())
            if pause is None:
                return await self._judged(tried, workspace)
            await workspace.remove()
            if tried.clock is not None:
                self._spent["waiting"] += pause
                await trio.sleep(pause)
            number += 1

    async def clean_up(self, result: BatchResult) -> None:
        """Remove its workspaces, but the one that the result names. Only after the result is on disk: the check may need it again."""
        for number in range(1, len(result.tries) + 2):
            workspace = self._workspace(number)
            if result.workspace != str(workspace.place):
                await workspace.remove()

    def _workspace(self, number: int) -> BatchWorkspace:
        return BatchWorkspace(
            self._task, self._place.work / f"{self._slug}-{number}", self._plan.workplace.cwd
        )

    async def _try(self, workspace: BatchWorkspace) -> Tried:
        one = Try(self._place.tries, workspace.place.name, self._task, self._plan)
        if (found := await one.find()) is not None:
            return found
        # one that was begun goes on in what it has done so far
        cwd = await (workspace.folder() if one.is_resumed and workspace.is_ready else self._set_up(workspace))
        tried = await one.run(cwd, self._limits)
        assert tried.clock is not None
        for name in ("starting", "waiting", "retrying"):
            self._spent[name] += getattr(tried.clock, name)
        return tried

    async def _set_up(self, workspace: BatchWorkspace) -> Path:
        cwd = await workspace.make()
        if self._task.setup is not None:
            try:
                end = await run_command(self._task.setup, cwd, self._facts(), self._task.command_timeout)
            except ProcessError as error:
                raise _SetupFailed(f"setup cannot be run: {error}") from error
            self._spent["setup"] += end.seconds
            if end.status != 0:
                how = "was not over in time" if end.status is None else f"ended with status {end.status}"
                raise _SetupFailed(f"setup {how}: {' '.join(end.output.split())[-500:]}")
        workspace.mark_ready()
        return cwd

    # -- its result

    async def _judged(self, tried: Tried, workspace: BatchWorkspace) -> BatchResult:
        came = tried.came
        if not isinstance(came, Answer):
            return self._result(None, _Grade(cause=tried.record.outcome, error=tried.record.error), workspace)
        if not came.ok:
            return self._result(came, _Grade(cause=came.outcome, error=came.error), workspace)
        return self._result(came, await self._grade(came, workspace), workspace)

    async def _grade(self, answer: Answer, workspace: BatchWorkspace) -> _Grade:
        task = self._task
        if task.check is None:
            return _Grade(1.0)
        given = as_text(answer.structured_output, answer.text)
        try:
            end = await run_command(
                task.check, await workspace.folder(), self._facts(), task.command_timeout, given
            )
        except ProcessError as error:
            return _Grade(cause="check", error=f"check cannot be run: {error}")
        self._spent["check"] += end.seconds
        score, report = score_of(end)
        check = BatchCheck(status=end.status, output=end.output, report=report)
        if end.status is None:
            return _Grade(0.0, "check", f"check was not over within {task.command_timeout:g} s", check)
        return _Grade(score, check=check)

    def _result(self, answer: Answer | None, grade: _Grade, workspace: BatchWorkspace) -> BatchResult:
        task, agent, repetition = self._key
        kept = self._place.keep == "all" or (self._place.keep == "failed" and grade.score < 1)
        return BatchResult(
            task=task,
            agent=agent,
            repetition=repetition,
            score=grade.score,
            cause=grade.cause,
            error=grade.error,
            text="" if answer is None else answer.text,
            structured_output=None if answer is None else answer.structured_output,
            cost_usd=_cost(self._tries),
            usage=_usage(self._tries),
            model=None if answer is None else answer.model,
            times=self._times(),
            tries=tuple(self._tries),
            check=grade.check,
            recording=self._tries[-1].recording if self._tries else None,
            workspace=str(workspace.place) if kept and workspace.place.exists() else None,
            metadata=dict(self._task.metadata),
            at=time.time(),
            digest=self._digest,
        )

    def _facts(self) -> dict[str, str]:
        task, agent, repetition = self._key
        return {"PROCTOR_TASK": task, "PROCTOR_AGENT": agent, "PROCTOR_REPETITION": str(repetition)}

    def _times(self) -> BatchTimes:
        known = [one.working for one in self._tries if one.working is not None]
        working = round(sum(known), 3) if len(known) == len(self._tries) else None
        return BatchTimes(
            working=working, **{name: round(seconds, 3) for name, seconds in self._spent.items()}
        )


def _cost(tries: Sequence[BatchTry]) -> float | None:
    known = [one.cost_usd for one in tries if one.cost_usd is not None]
    return round(sum(known), 9) if known else None


def _usage(tries: Sequence[BatchTry]) -> Usage | None:
    total: Usage | None = None
    for one in tries:
        total = add_usage(total, one.usage)
    return total
