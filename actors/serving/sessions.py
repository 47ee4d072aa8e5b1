"""A directory for each session id, in which calls work one after the other and continue one conversation.

A session is made on first use and found again later; the calls of one id wait for each other, in order. A session that is in
use or waited for is never removed. An idle one goes after `ttl` seconds, the longest idle one when there are too many, and
all of them when the sessions are closed; with `keep` they stay on disk. The layout on disk, and what a crash leaves:
docs/explanation/sessions.md. Not here: the process that runs in a session (`Session.plan` says where and what to resume).
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import attrs
import trio
from trio_util import RepeatedEvent

from proctor.actors import runs
from proctor.actors.errors import (
    AskInterrupted,
    BadOption,
    SessionBusy,
    SessionOwned,
    SessionsClosed,
    SessionsFull,
    SessionTimeout,
    StartRefused,
    unsent,
)
from proctor.actors.limits.account_book import ACCOUNT_BOOK, AccountBook
from proctor.actors.outcomes import Answer
from proctor.actors.plan.account_id import family_of
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.runs import DEADLINE
from proctor.actors.serving.session_dir import KEPT_TTL, SessionDir, discard, own, sweep
from proctor.actors.structured.payloads import Payload
from proctor.runtime.messaging import left, until
from proctor.runtime.spec import ChildSpec
from proctor.runtime.trio_only import check_in_trio

T = TypeVar("T")

TTL = 3600.0
"""Seconds for which an idle session is kept by default, if it ends with its host."""
SWEEPING = 3600.0
"""Seconds between two searches for kept sessions on disk that are too old."""
LIMIT = 100
"""Sessions at a time by default."""
LOG = "proctor"
Runner = Callable[..., Awaitable[Answer]]
"""Runs a plan with a prompt and `timeout=`, and with `schema=` and `payloads=` where there are any."""


def key_of(id: str) -> str:
    """The name of an id's directory: a digest, so that no id leads elsewhere and no file system takes two ids for one."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@attrs.frozen(kw_only=True)
class SessionFacts:
    """A session at one moment: its users (calls that hold it or wait for it), and its idle time (seconds, 0 while in use)."""

    id: str
    path: Path
    users: int
    idle: float


class Session:
    """One session, held by its caller. `id` is None for a call without a session; `path` is its working directory.

    `deadline` is the end of the time for which it is held, on Trio's clock (infinity: no limit)."""

    def __init__(
        self, id: str | None, folder: SessionDir, deadline: float = math.inf, book: AccountBook | None = None
    ) -> None:
        self._book = book
        self.id = id
        self.path = folder.files
        self.deadline = deadline
        self._folder = folder

    def conversation(self, agent: ChildSpec | Plan) -> str | None:
        """The id of the conversation in this agent's CLI, None before the first answer."""
        return self._folder.memory.get(family_of(plan_of(agent)))

    def remember(self, agent: ChildSpec | Plan, answer: Answer) -> None:
        """Let the next call continue the conversation of this answer, if it has one that can be continued."""
        if answer.session_id is not None and answer.ending != "refused_start":
            self._folder.remember(family_of(plan_of(agent)), answer.session_id, answer.total_cost_usd)

    def forget(self, agent: ChildSpec | Plan) -> None:
        """Let the next call begin a new conversation."""
        self._folder.remember(family_of(plan_of(agent)), None)

    def plan(self, agent: ChildSpec | Plan) -> Plan:
        """The agent's plan in this session: it resumes the conversation, and the CLI keeps that for the next call.

        With a home of its own for each process nothing is kept, so each call is a conversation of its own.
        """
        plan = plan_of(agent)
        placed, launch = plan.at(self.path), plan.launch
        if self.id is None or plan.workplace.home == "private":
            return placed
        resume = self.conversation(plan) or launch.resume
        spent = None if resume is None else self._folder.costs.get(resume)
        return attrs.evolve(placed, launch=attrs.evolve(launch, resume=resume, persist=True), spent_usd=spent)

    @overload
    async def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: type[T],
        payloads: Sequence[Payload] = (),
        by: Runner = ...,
    ) -> Answer[T]: ...

    @overload
    async def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
        by: Runner = ...,
    ) -> Answer: ...

    async def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
        by: Runner = runs.ask,  # this class has a `run` of its own
    ) -> Answer:
        """One prompt of this conversation, run by `runs.ask` or another such as `Pool.run`, whose errors it raises.

        It ends after `timeout` seconds, or at this session's `deadline` where that comes first. `schema` and `payloads` are as
        for `Agent.ask`; `by` gets them where there are any. If the CLI has lost the conversation a new one begins, with a
        warning in the log.
        """
        ends, plan = min(until(timeout), self.deadline), plan_of(agent)
        more: dict[str, Any] = {} if schema is None else {"schema": schema}
        by = partial(by, **more, **({"payloads": payloads} if payloads else {}))
        conversation = self.conversation(plan)
        # For the runs below: what they spend counts for these sessions, where no other book is around.
        around = ACCOUNT_BOOK.set(ACCOUNT_BOOK.get() or self._book)
        try:
            answer = await self._continue(plan, prompt, ends, by, conversation)
            if answer is None:
                logging.getLogger(LOG).warning(
                    "session %.80r begins anew: its CLI has lost %s", self.id, conversation
                )
                self.forget(plan)
                answer = await by(self.plan(plan), prompt, timeout=left(ends))
        except AskInterrupted as late:  # the conversation exists, and the next call continues it
            if late.delivery is not None and late.delivery.session_id is not None:
                self._folder.remember(family_of(plan), late.delivery.session_id)
            raise
        finally:
            ACCOUNT_BOOK.reset(around)
        self.remember(plan, answer)
        return answer

    async def _continue(
        self, plan: Plan, prompt: str, ends: float, by: Runner, conversation: str | None
    ) -> Answer | None:
        """Run in the conversation so far; None when the CLI has lost it."""
        try:
            answer = await by(self.plan(plan), prompt, timeout=left(ends))
        except SessionOwned:
            # Another agent has the conversation: it is not lost, and must not begin anew.
            raise
        except StartRefused as error:
            if conversation is None or error.resumed != conversation:
                raise
            return None
        return None if conversation is not None and answer.ending == "refused_start" else answer


@attrs.define(eq=False)
class _Entry:
    """A session in memory. `users` hold it or wait for it; without any it is idle since `since`."""

    folder: SessionDir
    id: str | None = None
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0
    since: float = 0.0


@asynccontextmanager
async def _turn(entry: _Entry, ends: float, timeout: float | None) -> AsyncGenerator[None]:
    ahead, began = entry.users - 1, trio.current_time()
    with trio.move_on_at(ends) as waiting:
        await entry.turn.acquire()
    if waiting.cancelled_caught:
        elapsed = trio.current_time() - began
        raise SessionTimeout(f"session {entry.id!r}", timeout or 0.0, ahead=ahead, elapsed=elapsed)
    try:
        yield
    finally:
        entry.turn.release()


class Sessions:
    """`async with Sessions(root) as sessions`, then `async with sessions.hold(id) as session`.

    `ttl` in seconds (3600, and 30 days with `keep`; math.inf keeps idle ones), at most `limit` at a time (100). `keep`:
    they stay on disk when these are closed, and the next `Sessions` on this root continues them. Raises `BadOption`; entering
    raises OSError when the root cannot be used.
    """

    def __init__(
        self, root: str | Path, *, ttl: float | None = None, limit: int = LIMIT, keep: bool = False
    ) -> None:
        if ttl is None:
            ttl = KEPT_TTL if keep else TTL
        if not isinstance(root, str | os.PathLike) or not root or not isinstance(os.fspath(root), str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"root of the sessions must be the path of a folder, got {root!r}")
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"ttl must be a number of seconds above 0, got {ttl!r}")
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"limit must be a number of sessions above 0, got {limit!r}")
        self.root = Path(os.path.expanduser(root)).absolute()
        self._ttl = ttl
        self._limit = limit
        self._keep = keep
        self._book = AccountBook(self.root / "budgets.json" if keep else None)
        self._entries: dict[str, _Entry] = {}  # the one that was idle longest comes first
        self._changed = RepeatedEvent()
        self._life: trio.Nursery | None = None
        self._tasks: AbstractAsyncContextManager[trio.Nursery]

    def __len__(self) -> int:
        """The number of sessions in memory."""
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        """Whether there is a session of this id."""
        return isinstance(id, str) and key_of(id) in self._entries

    def facts(self) -> tuple[SessionFacts, ...]:
        """The sessions that were used since the start, without calls that have none; the longest idle one comes first."""
        now = trio.current_time()
        return tuple(
            SessionFacts(id=e.id, path=e.folder.files, users=e.users, idle=0.0 if e.users else now - e.since)
            for e in self._entries.values()
            if e.id is not None
        )

    async def remove(self, id: str) -> bool:
        """Remove a session with everything in it; returns whether it existed, in memory or on disk. Raises `SessionBusy`
        when it is in use, here or by another host, and `SessionsClosed`; OSError when the disk refuses."""
        self._must_be_open()
        key = key_of(id)
        if (entry := self._entries.get(key)) is None:
            if not (self.root / key).exists():
                return False
            entry = _Entry(self._owned(key, id, keep=None))
            # Renamed under its lock: from here no call finds it, and the sweep removes what a crash leaves.
            entry.folder.unname()
        elif entry.users:
            raise SessionBusy(f"session {id!r}", "it is in use")
        else:
            self._taken(key)
        await self._finish(entry)
        return True

    # -- one call

    @asynccontextmanager
    async def hold(self, id: str | None = None, *, timeout: float | None = None) -> AsyncGenerator[Session]:
        """Hold the session of this id for the block; waits while another call has it. None: a session for this block alone,
        which is removed at its end.

        `timeout` in seconds is for the wait and for `Session.run` in the block together.

        Raises `ResourceUnavailable`: `SessionTimeout` when they have passed in waiting, `SessionsFull` when all of `limit`
        sessions are in use, `SessionBusy` when another host has this one, and `SessionsClosed`. Raises `BadOption` for an
        empty id; OSError when the disk refuses.
        """
        if id == "":
            raise BadOption("a session id is a text that is not empty, or None for a call of its own")
        ends = until(timeout)
        key = secrets.token_hex(20) if id is None else key_of(id)
        async with AsyncExitStack() as stack:
            with unsent():
                entry = await self._entered(key, id)
                # Before the wait for the turn: a call that is cancelled in the queue has to be counted out.
                stack.push_async_callback(self._let_go, key, entry)
                await stack.enter_async_context(_turn(entry, ends, timeout))
                # They may have been closed while this call waited.
                self._must_be_open()
            entry.folder.renew()
            yield Session(id, entry.folder, ends, self._book)

    async def _let_go(self, key: str, entry: _Entry) -> None:
        self._left(key, entry)
        if entry.id is None:
            await self._drop(key)

    async def _entered(self, key: str, id: str | None) -> _Entry:
        self._must_be_open()
        if (entry := self._entries.get(key)) is not None:
            # Counted from the wait on: a session that is waited for is never removed.
            entry.users += 1
            return entry
        doomed = self._take_oldest()
        try:
            folder = self._owned(key, id, keep=self._ttl if self._keep and id is not None else None)
            entry = self._entries[key] = _Entry(folder, id, users=1)
        finally:
            # Also when the new one fails: this one is out of the table, and has no name any more.
            await self._finish(doomed)
        return entry

    def _owned(self, key: str, id: str | None, *, keep: float | None) -> SessionDir:
        try:
            return own(self.root / key, keep=keep)
        except BlockingIOError:
            raise SessionBusy(f"session {id!r}", "another host has it") from None

    def _left(self, key: str, entry: _Entry) -> None:
        entry.users -= 1
        entry.since = trio.current_time()
        # To the end of the table: the one that was idle longest stands first. Not one that was removed
        # meanwhile.
        if self._entries.get(key) is entry:
            self._entries[key] = self._entries.pop(key)
        self._changed.set()

    def _must_be_open(self) -> None:
        if self._life is None:
            raise SessionsClosed(str(self.root), "these sessions are not open")

    # -- removing

    def _take_oldest(self) -> _Entry | None:
        """Make room for one more: an idle session whose removal has begun, or None; a kept one is only closed."""
        if len(self._entries) < self._limit:
            return None
        for key, entry in self._entries.items():
            if not entry.users and entry.folder.keep is not None:
                self._entries.pop(key).folder.close()
                return None
            if not entry.users:
                return self._taken(key)
        raise SessionsFull(str(self.root), f"all of {self._limit} sessions are in use")

    def _taken(self, key: str) -> _Entry:
        entry = self._entries.pop(key)
        entry.folder.unname()
        return entry

    async def _drop(self, key: str) -> None:
        entry = self._entries.get(key)
        if entry is not None and not entry.users:
            await self._finish(self._taken(key))

    async def _finish(self, entry: _Entry | None) -> None:
        if entry is not None:
            with trio.CancelScope(shield=True):  # it has no name any more: nothing else would remove it
                await discard(entry.folder)

    async def _expire(self, life: trio.Nursery) -> None:
        while True:
            # A copy: `_taken` takes entries out.
            for key, entry in [*self._entries.items()]:
                if not entry.users and entry.since + self._ttl <= trio.current_time():
                    # In a task: to remove a large directory must not delay the others.
                    life.start_soon(self._finish, self._taken(key))
            idle = (entry.since for entry in self._entries.values() if not entry.users)
            with trio.move_on_at(min(idle, default=math.inf) + self._ttl):
                await self._changed.wait()

    async def _sweep(self) -> None:
        """Remove the sessions on disk that are too old: those of earlier hosts, and those that were closed to make room."""
        while True:
            await trio.sleep(SWEEPING)
            with suppress(OSError):  # the next call that needs the root raises it
                await sweep(self.root, self._ttl)

    # -- life

    async def __aenter__(self) -> Self:
        check_in_trio("proctor.Sessions")
        if self._life is not None:
            raise RuntimeError("these sessions are open already")
        await sweep(self.root, self._ttl if self._keep else None)
        self._tasks = trio.open_nursery()
        self._life = await self._tasks.__aenter__()
        self._life.start_soon(self._expire, self._life)
        if self._keep:
            self._life.start_soon(self._sweep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        life, self._life = self._life, None
        assert life is not None
        # a cancellation from outside must not skip the closing below; removals that have begun are finished
        life.cancel_scope.shield = True
        life.cancel_scope.cancel("the sessions are closed")
        await self._tasks.__aexit__(None, None, None)
        for key in [*self._entries]:
            await self._close(key)
        self._book.close()

    async def _close(self, key: str) -> None:
        entry = self._entries.pop(key)
        if entry.folder.keep is not None:
            entry.folder.close()
        else:
            entry.folder.unname()
            await self._finish(entry)
