"""The requests of a tree that are kept in its store: those with a key.

A request with a key is the tree's, not its caller's: it goes on when its caller has left, and all who ask with the same key get the
same end. It is accepted once it is on disk, marked as sent before a byte of its prompt is written, and its end is on disk
before a caller has it. Of a host that died, what was not sent is begun by the next one, once; what was sent follows the
option `on_crash` of its agent, and by default ends as `MaybeExecuted`. Nothing that was sent is sent again unless that option says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

import attrs
import msgspec
import trio

from proctor.actors.agent.request import Request
from proctor.actors.agent.turn import ACKNOWLEDGED, Turn
from proctor.actors.delivery import Delivery
from proctor.actors.errors import AgentError, AskTimeout, BadOption, MaybeExecuted, NotExecuted
from proctor.actors.limits.admission import TreeLimits
from proctor.actors.outcomes import Answer, answer_of
from proctor.actors.recording.recorded_turn import RecordedTurn, read_turn
from proctor.actors.store.backend import StoreBackend, StoreError, opened
from proctor.actors.store.ends import answer_of_end, copy_of, end_with_answer, end_with_error
from proctor.actors.store.journal import Journal
from proctor.actors.store.records import SendMark, StoredEnd, StoredRequest, digest_of
from proctor.protocols.lenient import decoded_or
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import NoProc
from proctor.runtime.processes import ProcessError

STORED_REQUESTS: ContextVar[StoredRequests | None] = ContextVar("proctor.stored_requests", default=None)
SESSION = "session"
"""The fact that is an agent's conversation."""
RESET = "reset:"
"""What the facts begin with that are the end of an account's usage limit."""
TOTAL = "total_cost_usd"
"""The fact that is what the conversation had cost at the end of its last turn: its id, a space, and dollars."""
TODAY, RESTARTS = "expense_today", "restarts"
"""The facts that are what an agent has spent on its last day, and the last restarts of an agent or a supervisor."""
_READ = (SESSION, TOTAL, TODAY, RESTARTS)
MAX_KEY = 200
"""Characters of a key."""
_ENDS = (AgentError, ProcessError)
_GRACE = 1.0
"""Seconds that a caller waits behind its deadline for what its request has come to."""
_RETRY = 5.0
"""Seconds between two attempts to keep an end on a disk that refuses it."""
_FACT_RETRY = 1.0
"""Seconds between two attempts to keep a fact; short, since a host that is killed before it leaves an older one."""
_LOG = "proctor"


class KeyReused(BadOption):
    """A key was used for another request before; nothing was sent."""

    http_status = 409
    remedy = "use a key of its own for each request, or ask for exactly the same"

    def __init__(self, agent: str, key: str) -> None:
        super().__init__(
            f"key {key!r} of agent {agent!r} was used for another prompt, schema or payload: use another key"
        )


class Handle(Protocol):
    """The address of an agent, as far as its requests need it."""

    async def submit(self, pending: Request) -> Turn:
        """Give it a request; waits for a restart. Raises what keeps it from being accepted."""
        ...

    async def until_found(self) -> None:
        """Wait until it takes requests. Raises `NoProc` when its tree is ending."""
        ...


@attrs.define(eq=False)
class StoredTurn:
    """What the callers of one key wait for. `accepted` is set when the request is on disk; `settled` when they can go on, with
    the `end` of the request or with the `error` that keeps it from having one now."""

    stored: StoredRequest
    accepted: trio.Event = attrs.field(factory=trio.Event)
    settled: trio.Event = attrs.field(factory=trio.Event)
    end: StoredEnd | None = None
    error: Exception | None = None

    def settle(self, end: StoredEnd | None, error: Exception | None = None) -> None:
        """Let the callers go on."""
        self.end, self.error = end, error
        self.accepted.set()
        self.settled.set()

    async def answer(self, request: Request) -> Answer:
        """Wait for the end, as the caller who made `request`, and return its answer. Raises what the request has come to."""
        with trio.move_on_at(request.ends + ACKNOWLEDGED + _GRACE):
            await self.settled.wait()
        if self.error is not None:
            raise copy_of(self.error)  # each caller its own: it collects the frames that it passes
        if self.end is None:
            what = "its request goes on; ask with the same key to wait for its end"
            raise AskTimeout(self.stored.agent, request.timeout or 0.0, what)
        answer = answer_of_end(self.end)
        if request.inquiry is None or answer.structured_output is None or not answer.ok:
            return answer
        return attrs.evolve(answer, value=request.inquiry.schema.value(answer.structured_output))


class StoredRequests:
    """The keyed requests of one tree, over `store`; its tasks run in `nursery` and end with the tree."""

    def __init__(self, store: StoreBackend, nursery: trio.Nursery) -> None:
        self._store = store
        self._nursery = nursery
        self._handle: Callable[[str], Handle] | None = None
        self._turns: dict[tuple[str, str], StoredTurn] = {}
        self._absent: dict[str, list[StoredTurn]] = {}
        self._facts: dict[tuple[str, str], str] = {}
        self._unsaved = set[tuple[str, str]]()
        self._left: list[StoredRequest] = []
        self._closing = trio.Event()

    # -- for callers

    async def accept(self, name: str, request: Request, key: str) -> StoredTurn:
        """Return when the request of the agent `name` is on disk, or one with its key is. Raises `KeyReused`, and `StoreError`
        when it cannot be kept."""
        asked = _stored(name, request, key)
        turn = self._turns.get((name, key))
        if turn is None:
            self._turns[name, key] = turn = StoredTurn(asked)
            # In a task of the tree: the request goes on when its caller is cancelled.
            self._nursery.start_soon(self._conduct, turn, request)
        elif turn.stored.digest != asked.digest:
            raise KeyReused(name, key)
        await turn.accepted.wait()
        if turn.error is not None:
            raise copy_of(turn.error)
        return turn

    async def all(self, agent: str | None = None) -> Sequence[StoredRequest]:
        """The requests that are kept, in the order in which they were accepted; of one agent, if it is named. Raises `StoreError`."""
        return await self._store.requests(agent=agent)

    def open_ids(self, name: str) -> set[str]:
        """The ids of the requests of that agent that have no end yet."""
        return {turn.stored.id for (agent, _), turn in self._turns.items() if agent == name}

    def fact(self, name: str, fact: str) -> str | None:
        """A fact of the agent whose place below the root is `name`, as an earlier host or this one has kept it."""
        return self._facts.get((name, fact))

    def session(self, name: str) -> str | None:
        """The conversation in its last life of the agent whose place below the root is `name`; None for a new one."""
        return self._facts.get((name, SESSION))

    def total_cost(self, name: str) -> float | None:
        """What that conversation had cost (dollars); None where it is not known."""
        session_id, _, total = self._facts.get((name, TOTAL), "").rpartition(" ")
        return float(total) if session_id and session_id == self.session(name) else None

    def keep_session(self, name: str, session_id: str, total_cost_usd: float | None) -> None:
        """Keep the conversation of that agent, and what it has cost, for its next life. Never waits."""
        self.keep(name, SESSION, session_id)
        if total_cost_usd is not None:
            self.keep(name, TOTAL, f"{session_id} {total_cost_usd!r}")

    def keep_reset(self, account: str, resets_at: float) -> None:
        """Keep when the usage limit of an account ends (Unix seconds). Never waits."""
        self.keep("", f"{RESET}{account}", repr(resets_at))

    def keep(self, name: str, fact: str, value: str) -> None:
        """Keep a fact in the place of the one before. Never waits."""
        if self._facts.get((name, fact)) != value:
            self._facts[name, fact] = value
            # A task for each: those that change together are in one write of the store, so a host that is killed leaves a
            # conversation with its cost, or neither.
            if (name, fact) not in self._unsaved:
                self._unsaved.add((name, fact))
                self._nursery.start_soon(self._save_fact, name, fact)

    # -- a request in this host

    async def _conduct(self, turn: StoredTurn, request: Request) -> None:
        # Shielded: when the tree is cancelled its agents stop first, and what they leave is still to be kept.
        with trio.CancelScope(shield=True):
            stored = turn.stored
            try:
                kept = await self._store.accept(stored)
            except StoreError as error:
                self._drop(turn)
                turn.settle(None, error)
                return
            if kept.id != stored.id:
                self._drop(turn)
                same = kept.digest == stored.digest
                turn.settle(kept.end if same else None, None if same else KeyReused(stored.agent, stored.key))
                return
            if (live := await self._begin(turn, request)) is not None:
                turn.accepted.set()
                await self._finish(turn, request, live)

    async def _begin(self, turn: StoredTurn, request: Request) -> Turn | None:
        """Give the request to its agent; None when it has come to its end with that, or its agent is away."""
        request.journal = Journal(self._store, turn.stored.id, turn.stored.sent)
        try:
            return await self._agent(turn.stored.agent).submit(request)
        except (NoProc, ActorExited) as error:
            self._put_off(turn, _kept(turn, str(error)))
        except _ENDS as error:  # refused: its queue is full, or a payload is not taken
            await self._end(turn, end_with_error(error), error)
        return None

    async def _finish(self, turn: StoredTurn, request: Request, live: Turn) -> None:
        with trio.CancelScope(shield=True):  # see `_conduct`
            try:
                end = end_with_answer(await live.finish())
            except AskTimeout as error:  # also where nothing was sent: its time is over in any host
                end = end_with_error(error)
            except (NotExecuted, MaybeExecuted) as error:
                mark = None if request.journal is None else request.journal.mark
                turn.stored = msgspec.structs.replace(turn.stored, sent=mark)
                # Its agent is gone. What was not sent, or may be gone on with, is served when the agent is back; but not what its agent has
                # crashed with until it was given up, and would crash with again.
                if _may_go_on(mark) and not (isinstance(error, MaybeExecuted) and error.outcome != "stopped"):
                    self._put_off(turn, error if mark is not None else _kept(turn, str(error)))
                    return
                end = end_with_error(error)
            except _ENDS as error:
                end = end_with_error(error)
            await self._end(turn, end)

    async def _end(self, turn: StoredTurn, end: StoredEnd, error: Exception | None = None) -> None:
        failed = False
        while True:
            try:
                await self._store.end(turn.stored.id, end)
                break
            except StoreError as refusal:
                # The answer was paid for: its callers have it at once, and the disk as soon as it can.
                turn.settle(end, error)
                if not failed:
                    text = "the end of the request with key %r of agent %s cannot be kept yet: %s"
                    logging.getLogger(_LOG).error(text, turn.stored.key, turn.stored.agent, refusal)
                if failed and self._closing.is_set():
                    return
                failed = True
                await self._pause(_RETRY)
        self._drop(turn)
        turn.settle(end, error)

    def _drop(self, turn: StoredTurn) -> None:
        place = (turn.stored.agent, turn.stored.key)
        if self._turns.get(place) is turn:
            del self._turns[place]

    # -- requests whose agent is away

    def _put_off(self, turn: StoredTurn, error: Exception) -> None:
        """Let the callers of a request go, and serve it when its agent is there."""
        turn.settle(None, error)
        self._await_agent(StoredTurn(turn.stored))

    def _await_agent(self, turn: StoredTurn) -> None:
        turn.accepted.set()
        agent = turn.stored.agent
        self._turns[agent, turn.stored.key] = turn
        # One task for each agent: it keeps their order.
        if agent not in self._absent:
            self._absent[agent] = []
            self._nursery.start_soon(self._serve_when_back, agent)
        self._absent[agent].append(turn)

    async def _serve_when_back(self, agent: str) -> None:
        with trio.CancelScope(shield=True):
            try:
                await self._agent(agent).until_found()
            except NoProc as error:  # the tree is ending: they are the next host's
                for turn in self._absent.pop(agent):
                    turn.settle(None, _kept(turn, str(error)))
                return
            turns = sorted(self._absent.pop(agent), key=lambda turn: turn.stored.accepted)
            for turn in turns:
                request = _request_of(turn.stored)
                if (live := await self._begin(turn, request)) is not None:
                    self._nursery.start_soon(self._finish, turn, request, live)

    def _agent(self, name: str) -> Handle:
        assert self._handle is not None
        return self._handle(name)

    # -- between two hosts

    async def load(self, limits: TreeLimits) -> None:
        """Read what an earlier host has left, and end what it left open and what must not be gone on with. Raises `StoreError`."""
        facts = await self._store.facts()
        limits.overrides.restore(facts, self._store.put)
        limits.restore_resets(_resets(facts.get("", {})))
        limits.keep_reset = self.keep_reset
        self._facts = {
            (agent, fact): value
            for agent, named in facts.items()
            for fact, value in named.items()
            if fact in _READ
        }
        for stored in await self._store.requests(open_only=True):
            recorded = None if stored.sent is None else await _recorded(stored, stored.sent)
            if recorded is not None and recorded.end is not None and stored.schema is None:
                # It had ended, and its host died before it could say so.
                answer = answer_of(stored.agent, recorded.end)
                await self._store.end(stored.id, end_with_answer(answer))
                self._note_total(answer)
            elif _may_go_on(stored.sent):
                self._left.append(stored)
            else:
                await self._store.end(stored.id, end_with_error(cut_off(stored, recorded)))

    def _note_total(self, answer: Answer) -> None:
        # by the conversation: a request has the name of its agent, and a fact its place
        for (place, fact), value in list(self._facts.items()):
            if (fact, value) == (SESSION, answer.session_id) and answer.total_cost_usd is not None:
                self._facts[place, TOTAL] = f"{value} {answer.total_cost_usd!r}"

    def serve(self, handle: Callable[[str], Handle]) -> None:
        """Begin what an earlier host has left, each request when its agent is there; `handle` gives the agent of a name."""
        self._handle = handle
        for stored in self._left:
            self._await_agent(StoredTurn(stored))
        self._left.clear()

    def close(self) -> None:
        """The tree has ended."""
        self._closing.set()

    async def _save_fact(self, agent: str, fact: str) -> None:
        with trio.CancelScope(shield=True):
            await self._put_until_kept(agent, fact)
        self._unsaved.remove((agent, fact))

    async def _put_until_kept(self, agent: str, fact: str) -> None:
        """Tried again until it is kept: from an older cost the next host would count a turn twice."""
        refused = False
        while True:
            value, is_last = self._facts[agent, fact], self._closing.is_set()
            try:
                await self._store.put(agent, fact, value)
            except StoreError as error:
                if refused and is_last:
                    return
                if not refused:
                    text = "the %s of agent %s is not yet kept for its next life: %s"
                    logging.getLogger(_LOG).warning(text, fact, agent, error)
                refused = True
                await self._pause(_FACT_RETRY)
            else:
                if self._facts[agent, fact] == value:  # else it has changed meanwhile
                    return

    async def _pause(self, seconds: float) -> None:
        """Wait so long, but not longer than the tree is there."""
        with trio.move_on_after(seconds):
            await self._closing.wait()


def _resets(facts: Mapping[str, str]) -> dict[str, float]:
    """When the usage limits of accounts end that earlier hosts have met (Unix seconds)."""
    ends = {
        fact.removeprefix(RESET): decoded_or(None, float, value.encode())
        for fact, value in facts.items()
        if fact.startswith(RESET)
    }
    return {account: end for account, end in ends.items() if end is not None}


def requests_of_tree(
    store: StoreBackend | None, limits: TreeLimits
) -> AbstractAsyncContextManager[StoredRequests | None]:
    """A block for a tree: its agents find its keyed requests in their context, None without a `store`, which keeps what outlives a host of
    its `limits` as well. Entering opens the store, and raises `StoreError`; leaving closes it."""
    return _no_requests() if store is None else _kept_requests(store, limits)


@asynccontextmanager
async def _no_requests() -> AsyncGenerator[None]:
    with _as_current(None):  # the store of a tree around is not this one's
        yield


@asynccontextmanager
async def _kept_requests(store: StoreBackend, limits: TreeLimits) -> AsyncGenerator[StoredRequests]:
    raised: BaseException | None = None
    async with opened(store), trio.open_nursery() as nursery:
        kept = StoredRequests(store, nursery)
        await kept.load(limits)
        try:
            with _as_current(kept):
                yield kept
        except BaseException as error:  # noqa: BLE001  # the caller's own: it leaves bare, not in a group of one
            raised = error
        finally:
            kept.close()
    if raised is not None:
        raise raised


@contextmanager
def _as_current(requests: StoredRequests | None) -> Generator[None]:
    around = STORED_REQUESTS.get()
    STORED_REQUESTS.set(requests)
    try:
        yield
    finally:
        STORED_REQUESTS.set(around)


def current_requests() -> StoredRequests | None:
    """The keyed requests of the tree around; None for one without a store."""
    return STORED_REQUESTS.get()


def check_key(key: str) -> str:
    """The key. Raises `BadOption` for what cannot be one."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not key.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(f"key {key!r:.220}: accepted: 1 to {MAX_KEY} printable characters")
    return key


def _may_go_on(mark: SendMark | None) -> bool:
    """Whether a request that its host or its agent left without an end may be sent."""
    return mark is None or mark.may_go_on


def _stored(agent: str, request: Request, key: str) -> StoredRequest:
    schema = None if request.inquiry is None else dict(request.inquiry.schema.json)
    return StoredRequest(
        id=request.ticket,
        agent=agent,
        key=key,
        digest=digest_of(request.text, schema, request.attachments),
        prompt=request.text,
        accepted=time.time(),
        timeout=request.timeout,
        schema=schema,
        attachments=request.attachments,
    )


def _request_of(stored: StoredRequest) -> Request:
    """The request, to be sent for the first time or gone on with."""
    inquiry = None
    if stored.schema is not None:
        # loads the JSON schemas, which few requests need
        from proctor.actors.structured.structured import structured_request_of

        inquiry = structured_request_of(stored.schema)
    request = Request(
        stored.id,
        stored.prompt,
        stored.attachments,
        inquiry,
        stored.timeout,
        asked=trio.current_time() - _age(stored),
        nested=False,
    )
    if stored.timeout is not None:
        request.ends = request.asked + stored.timeout
    if stored.sent is not None:
        request.prompt, request.sent, request.written = stored.id, True, "yes"
        request.started = stored.sent.started
    return request


def _kept(turn: StoredTurn, why: str) -> NotExecuted:
    stored = turn.stored
    return not_sent(
        stored, f"{why}; it is kept under the key {stored.key!r}, and is sent when the agent runs again"
    )


def not_sent(stored: StoredRequest, why: str) -> NotExecuted:
    """The error for a request that was accepted and not sent."""
    return NotExecuted(stored.agent, why, delivery=Delivery(sent="no", stage="queued", elapsed=_age(stored)))


def _age(stored: StoredRequest) -> float:
    return max(0.0, time.time() - stored.accepted)  # a clock that was set back has not made it younger


async def _recorded(stored: StoredRequest, mark: SendMark) -> RecordedTurn | None:
    """What is known of a request that was sent; None where nothing was recorded, or the recording is gone."""
    if mark.recording is None:
        return None
    try:
        # In a thread: a recording may be large, and its disk slow.
        return await trio.to_thread.run_sync(read_turn, Path(mark.recording), stored.id)
    except OSError:
        return None


def cut_off(stored: StoredRequest, recorded: RecordedTurn | None) -> MaybeExecuted:
    """The end of a request whose host died while it was with its agent."""
    assert stored.sent is not None
    is_clipped = recorded is not None and recorded.clipped
    delivery = Delivery(
        sent="unknown",
        stage="sent" if recorded is None or not recorded.text else "streaming",
        elapsed=_age(stored),
        text="" if recorded is None else recorded.text,
        recording=None if stored.sent.recording is None else Path(stored.sent.recording),
        session_id=stored.sent.session_id or (None if recorded is None else recorded.session_id),
        truncated=("text",) if is_clipped else (),
    )
    return MaybeExecuted(stored.agent, "crashed", "the host that sent it has died", delivery=delivery)
