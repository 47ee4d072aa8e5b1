"""The handle of an agent: an address by which a caller sends requests to it, over its restarts."""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar, overload

import trio

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.approval_queue import ApprovalQueue, Approvals
from proctor.actors.agent.messages import (
    Control,
    ControlResult,
    GetApprovals,
    GetLog,
    GetRequests,
    GetStatus,
    Submit,
)
from proctor.actors.agent.receipts import Receipt, ReceiptTracker
from proctor.actors.agent.request import Request
from proctor.actors.agent.states import Status
from proctor.actors.agent.stored_requests import StoredRequests, StoredTurn, check_key
from proctor.actors.agent.turn import Turn
from proctor.actors.errors import RECORDED, AskNotSent, BadOption, NotExecuted, unsent
from proctor.actors.outcomes import Answer
from proctor.actors.plan.option_checks import check_request
from proctor.actors.process.memory import Memory, memory_of
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.actors.recording.segments import read_raw_frame
from proctor.actors.structured.payloads import Payload
from proctor.actors.tracing.tracing import TRACER, begin_trace
from proctor.protocols import vocabulary as v
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import NoProc
from proctor.runtime.messaging import Name, Ref

T = TypeVar("T")

_CONTROL_TIMEOUT = 10.0


class Agent:
    """One agent of a tree, by name; `address` is a `Name` (follows restarts) or a `Ref`."""

    def __init__(self, name: str, address: Name | Ref) -> None:
        self.name = name
        self._address = address
        self._ref: Ref | None = None  # the incarnation that answered last

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: type[T],
        payloads: Sequence[Payload] = (),
        key: str | None = None,
    ) -> Answer[T]: ...

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
        key: str | None = None,
    ) -> Answer: ...

    async def ask(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
        key: str | None = None,
    ) -> Answer:
        """Send `prompt` and wait for the end of its turn; `timeout` in seconds, None waits without limit.

        `schema` is what the answer is to be (a msgspec Struct, an attrs class, a TypedDict, a JSON schema as a mapping, or
        an `Expected` of one with bounds): `Answer.value` is then that, or the outcome is not ok. An answer that does not
        fit is asked for again; `BadOption` is raised for a schema that is none.

        An `Answer` comes for every turn that ended, whatever its outcome. Raises `AskNotSent` and `AskInterrupted` (both are
        an `AskTimeout`; after the deadline the CLI has `ACKNOWLEDGED` seconds to say that it has ended the turn), `MaybeExecuted`, `NotExecuted`, and `NoProc` when no such agent runs; a
        restart is waited out. The `delivery` of an error says how far the request came, with what had streamed.
        `payloads` go with the prompt, in their order; `UnsupportedPayload` is raised for one that this CLI cannot take.

        `key` is the caller's own name for the request, in a tree with a store: the request is then kept there, goes on when
        its caller leaves, and survives its host. All who ask the same with the same key get the same end, and nothing is sent
        twice; only one that was never sent is sent anew. Raises `KeyReused` when the key was used for another
        request, and `StoreError` when it cannot be kept.
        """
        request = Request.make(prompt, timeout, schema, payloads)
        if key is not None:
            return await (await self._accept(request, key)).answer(request)
        turn = await self.submit(request)
        try:
            return await turn.finish()
        finally:
            # Also when cancelled: the turn of a caller that has left is interrupted, not paid for to its end.
            turn.leave()

    def stream(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> AbstractAsyncContextManager[Turn]:
        """A `Turn`: `async for event in turn`, then `turn.answer`. Leaving early withdraws the request.

        `timeout`, `schema` and `payloads` as for `ask`, whose errors entering and iterating raise; the events are those of
        all attempts.
        """
        return self._stream(Request.make(prompt, timeout, schema, payloads))

    @asynccontextmanager
    async def _stream(self, pending: Request) -> AsyncGenerator[Turn]:
        turn = await self.submit(pending)
        try:
            yield turn
        finally:
            turn.leave()

    async def _accept(self, request: Request, key: str) -> StoredTurn:
        check_key(key)
        with trio.move_on_at(request.ends), unsent(request.asked):
            requests = await self._request(GetRequests())
            if not isinstance(requests, StoredRequests):
                text = f"key {key!r}: the tree of {self.name} keeps no requests; open it with store=, or leave the key out"
                raise BadOption(text)
            return await requests.accept(self.name, request, key)
        raise AskNotSent(self.name, request.timeout or 0.0, delivery=request.delivery())

    async def until_found(self) -> None:
        """Wait until the agent takes requests. Raises `NoProc` when its tree is ending."""
        if isinstance(self._address, Ref):
            raise NoProc(self._address)
        await self._address.until_found()

    async def submit(self, pending: Request) -> Turn:
        """Give it a request that is made already, and return the turn that it is served in. For what stands between a caller and
        the agent; others use `ask` and `stream`. A restart is waited out. Raises as `ask` does."""
        # here, in the task of the caller: its span is the parent
        if TRACER in sys.modules:
            pending.trace = pending.trace or begin_trace(pending.text)
        # the deadline counts from the call, so it covers the wait for a restart and for the mailbox
        with trio.move_on_at(pending.ends):
            try:
                turn = await self._request(Submit(pending))
                assert isinstance(turn, Turn)
                return turn
            except BaseException as error:
                # `Cancelled` included: a caller that gives up must leave no request behind.
                pending.withdrawn = True  # it may still lie in the mailbox
                if isinstance(error, RECORDED):
                    error.delivery = pending.delivery()
                if pending.trace is not None:
                    pending.trace.fail(type(error).__name__, str(error))
                raise
        if pending.trace is not None:
            pending.trace.fail("deadline", "the agent did not take it")
        raise AskNotSent(self.name, pending.timeout or 0.0, delivery=pending.delivery())

    async def _request(self, message: object) -> object:
        """The reply, from this incarnation or from the next: a message is taken and replied to in one step."""
        while True:
            try:
                self._ref = self._ref or self._incarnation()
                return await self._ref.call(message, timeout=None)
            except (NoProc, ActorExited):
                # What lay in the mailbox at its end was not handled, so it may be sent again.
                self._ref = None
                await self._wait_for_restart()

    def _incarnation(self) -> Ref:
        return self._address if isinstance(self._address, Ref) else self._address.ref()

    async def _wait_for_restart(self) -> None:
        if isinstance(self._address, Ref):
            raise NoProc(self._address)
        await self._address.wait_out()

    async def steer(self, text: str, *, timeout: float | None = None) -> Receipt:
        """Send `text` into the running turn, and wait for its fate, at most `timeout` seconds.

        Delivered: that turn has taken it in. Queued: the CLI keeps it, for its next turn, or still after `timeout`.
        Refused: this CLI cannot be steered, no turn runs, or it refused. Expired: the turn ended before it was taken
        in. Raises `NoProc` when no such agent runs.
        """
        check_request(text, timeout=timeout)
        return await self._control(v.Steer(str(uuid.uuid4()), text), timeout)

    async def queue(self, text: str, *, key: str | None = None) -> Receipt:
        """Send `text` in a turn of its own, behind what waits already; it stays queued when its caller leaves.

        The receipt says queued, or refused when too much waits; `await receipt.answer()` waits for the end of its
        turn. It survives restarts as `ask` does, and with a `key` the host, as for `ask`. Raises `NoProc` when no such agent runs.
        """
        pending = Request.make(text)
        try:
            if key is not None:
                kept = await self._accept(pending, key)
                return Receipt(request=kept.stored.id, fate="queued", finish=partial(kept.answer, pending))
            turn = await self.submit(pending)
        except NotExecuted as error:
            return Receipt(request=pending.ticket, fate="refused", why=str(error))
        return Receipt(request=pending.ticket, fate="queued", finish=turn.finish_anew)

    async def interrupt(self, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """End the running turn; the session lives on. Waits for the CLI's reply, at most `timeout` seconds (10).

        True when it was delivered; refused when no turn ran, expired when the turn or its process ended first.
        """
        return await self._control(v.Interrupt(str(uuid.uuid4())), timeout)

    async def set_model(self, model: str, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """From the next turn on, for this process: a new one starts with its plan's model. As for `interrupt`."""
        return await self._control(v.SetModel(str(uuid.uuid4()), model), timeout)

    async def set_permission_mode(self, mode: str, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """Go on under another permission mode, named as the CLI names it, for this process. As for `interrupt`."""
        return await self._control(v.SetPermissionMode(str(uuid.uuid4()), mode), timeout)

    async def stop_task(self, task: str, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """End one piece of background work, by the CLI's id of it (a `Notice` has it). As for `interrupt`."""
        return await self._control(v.StopTask(str(uuid.uuid4()), task), timeout)

    async def _control(self, request: v.AnyRequest, timeout: float | None) -> Receipt:
        limit = math.inf if timeout is None else timeout
        watch: ReceiptTracker | None = None
        with trio.move_on_after(limit):
            try:
                # not by `_request`: a control is for the turn that runs now and must not reach the next
                # incarnation
                result = await self._address.call(Control(request), timeout=None)
            except (NoProc, ActorExited) as error:
                return self._not_running(request, error)
            assert isinstance(result, ControlResult)
            if result.refused is not None:
                return Receipt(request=request.id, fate="refused", why=result.refused)
            # kept outside of the scope: after the time limit it knows whether the request was written at all
            watch = ReceiptTracker(request, result.turn, keeps=result.keeps)
            return await _fate(watch, result)
        if watch is not None:
            return watch.timed_out(limit)
        return Receipt(request=request.id, fate="expired", why=f"it was not written within {limit:g} s")

    def _not_running(self, request: v.AnyRequest, error: NoProc | ActorExited) -> Receipt:
        if isinstance(error, ActorExited):
            return Receipt(request=request.id, fate="expired", why=f"the agent ended first: {error}")
        # a Ref is one incarnation and has no successor; a name without a due restart has none either
        if isinstance(self._address, Ref) or not self._address.is_due():
            raise error
        return Receipt(
            request=request.id, fate="refused", why="no process is running: the agent is restarting"
        )

    @asynccontextmanager
    async def approvals(self) -> AsyncGenerator[Approvals]:
        """The tools that wait for a decision, and those that will: `async for approval in approvals`.

        For an agent whose permission is `"ask"`. Each has `allow()` and `deny()`; of several followers the first
        answer counts. Followed through restarts; ends when the agent is at rest. Raises `NoProc`, and `BadOption` for
        an agent whose questions its policy answers.
        """
        queue = await self._request(GetApprovals())
        assert isinstance(queue, ApprovalQueue)
        yield Approvals(queue)

    async def raw(self, event: v.AnyEvent) -> bytes:
        """The line that an event of this agent came from, without its end, as the CLI wrote it.

        Raises LookupError for an event that no line caused, or that belongs to no turn, or whose recording is gone.
        """
        log = await self._request(GetLog())
        assert isinstance(log, EventLog)
        # In a thread: a recording may be large, and its disk slow.
        return await trio.to_thread.run_sync(read_raw_frame, log.path, event)

    async def status(self) -> Status:
        """Its status; between two incarnations the state is `backoff`. Raises `NoProc` when no such agent runs."""
        try:
            status = await self._address.call(GetStatus())
        except (NoProc, ActorExited):
            if isinstance(self._address, Ref) or not self._address.is_due():
                raise
            state = self._address.kept().get("state")
            return Status(name=self.name, state="backoff") if state is None else state.backoff_status()
        assert isinstance(status, Status)
        return status

    def kept_state(self) -> AgentState | None:
        """What it keeps over its restarts, read without asking it; None where no start of it is due. For those who only look."""
        if isinstance(self._address, Ref):
            return None
        return self._address.kept().get("state")

    async def memory(self) -> Memory | None:
        """The machine's memory that its processes hold now; None when none runs, and on systems other than Linux.

        Raises `NoProc` as `status` does.
        """
        return memory_of((await self.status()).pid)

    @asynccontextmanager
    async def events(self, since: int | None = None) -> AsyncGenerator[Cursor]:
        """Follow the agent's log, through its restarts, from position `since` (default: from now on).

        Raises `NoProc` when no such agent runs; a restart is waited out.
        """
        log = await self._request(GetLog())
        assert isinstance(log, EventLog)
        yield log.cursor(since)


async def _fate(watch: ReceiptTracker, result: ControlResult) -> Receipt:
    # from the position at which it was written: the reply may be in the log before we look
    async for event in result.log.cursor(result.position):
        if (receipt := watch.read(event)) is not None:
            return receipt
    return watch.log_ended()
