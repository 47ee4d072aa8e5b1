"""proctor for asyncio programs: agents, their turns, and runs without a tree.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar, overload

from proctor import BatchResult, BatchTask
from proctor.actors.agent.approval_queue import Approval as _Approval
from proctor.actors.agent.approval_queue import Choice
from proctor.actors.agent.handle import Agent as _Agent
from proctor.actors.agent.receipts import Fate
from proctor.actors.agent.receipts import Receipt as _Receipt
from proctor.actors.agent.states import Status
from proctor.actors.batch.attempt import Keep
from proctor.actors.batch.batch import BatchProgress
from proctor.actors.batch.batch import batch as _batch
from proctor.actors.delivery import Delivery
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.process.memory import Memory
from proctor.actors.runs import ask as _ask
from proctor.actors.serving.retry import RETRY
from proctor.actors.serving.retry import attempted as _attempted
from proctor.actors.specs import stream as _stream
from proctor.actors.structured.payloads import Payload
from proctor.actors.tools.menus import MenuQuestion
from proctor.bridge.adapters import each
from proctor.bridge.asyncio_face import Block, Stream, call, call_plain, hosted
from proctor.bridge.proxies import Proxy
from proctor.bridge.trio_thread import current_thread
from proctor.protocols import vocabulary as v
from proctor.protocols.vocabulary import AnyEvent
from proctor.runtime.retry import Retry
from proctor.runtime.spec import ChildSpec

T = TypeVar("T")


@overload
async def ask(
    agent: ChildSpec | Plan,
    prompt: str,
    *,
    timeout: float | None = 300.0,
    schema: type[T],
    payloads: Sequence[Payload] = (),
) -> Answer[T]: ...


@overload
async def ask(
    agent: ChildSpec | Plan,
    prompt: str,
    *,
    timeout: float | None = 300.0,
    schema: object = None,
    payloads: Sequence[Payload] = (),
) -> Answer: ...


async def ask(
    agent: ChildSpec | Plan,
    prompt: str,
    *,
    timeout: float | None = 300.0,
    schema: object = None,
    payloads: Sequence[Payload] = (),
) -> Answer:
    """Send one prompt to one agent without a tree and return the answer, whatever its outcome."""
    result: Answer[Any] = await call(
        current_thread(), _ask, agent, prompt, timeout=timeout, schema=schema, payloads=payloads
    )
    return result


def stream(
    agent: ChildSpec,
    prompt: str,
    *,
    timeout: float | None = 300.0,
    schema: object = None,
    payloads: Sequence[Payload] = (),
) -> Block[Run]:
    """As `ask`, with events; see `runs.stream`."""
    return Block(None, Run.around, _stream, agent, prompt, timeout=timeout, schema=schema, payloads=payloads)


async def attempted(
    attempt: Callable[..., Awaitable[Answer]],
    retry: Retry = RETRY,
    *,
    name: str = "run",
    timeout: float | None = 300.0,
    chance: Random | None = None,
) -> Answer:
    """Run, and run again as `retry` says."""
    result: Answer[Any] = await call(
        current_thread(), _attempted, hosted(attempt), retry, name=name, timeout=timeout, chance=chance
    )
    return result


class Agent(Proxy[_Agent]):
    """One agent of a tree, by name; `address` is a `Name` (follows restarts) or a `Ref`."""

    @property
    def name(self) -> str:
        """See `Agent`."""
        value: str = self._target.name
        return value

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
        """Send `prompt` and wait for the end of its turn; `timeout` in seconds, None waits without limit."""
        result: Answer[Any] = await call(
            self._thread, self._target.ask, prompt, timeout=timeout, schema=schema, payloads=payloads, key=key
        )
        return result

    def stream(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Block[Turn]:
        """A `Turn`: `async for event in turn`, then `turn.answer`."""
        return Block(
            self._thread,
            Turn.around,
            self._target.stream,
            prompt,
            timeout=timeout,
            schema=schema,
            payloads=payloads,
        )

    async def until_found(self) -> None:
        """Wait until the agent takes requests."""
        await call(self._thread, self._target.until_found)

    async def steer(self, text: str, *, timeout: float | None = None) -> Receipt:
        """Send `text` into the running turn, and wait for its fate, at most `timeout` seconds."""
        return Receipt.around(
            await call(self._thread, self._target.steer, text, timeout=timeout), self._thread
        )

    async def queue(self, text: str, *, key: str | None = None) -> Receipt:
        """Send `text` in a turn of its own, behind what waits already; it stays queued when its caller leaves."""
        return Receipt.around(await call(self._thread, self._target.queue, text, key=key), self._thread)

    async def interrupt(self, *, timeout: float | None = 10.0) -> Receipt:
        """End the running turn; the session lives on."""
        return Receipt.around(await call(self._thread, self._target.interrupt, timeout=timeout), self._thread)

    async def set_model(self, model: str, *, timeout: float | None = 10.0) -> Receipt:
        """From the next turn on, for this process: a new one starts with its plan's model."""
        return Receipt.around(
            await call(self._thread, self._target.set_model, model, timeout=timeout), self._thread
        )

    async def set_permission_mode(self, mode: str, *, timeout: float | None = 10.0) -> Receipt:
        """Go on under another permission mode, named as the CLI names it, for this process."""
        return Receipt.around(
            await call(self._thread, self._target.set_permission_mode, mode, timeout=timeout), self._thread
        )

    async def stop_task(self, task: str, *, timeout: float | None = 10.0) -> Receipt:
        """End one piece of background work, by the CLI's id of it (a `Notice` has it)."""
        return Receipt.around(
            await call(self._thread, self._target.stop_task, task, timeout=timeout), self._thread
        )

    def approvals(self) -> Block[Approvals]:
        """The tools that wait for a decision, and those that will: `async for approval in approvals`."""
        return Block(self._thread, Approvals.around, self._target.approvals)

    async def raw(self, event: v.AnyEvent) -> bytes:
        """The line that an event of this agent came from, without its end, as the CLI wrote it."""
        result: bytes = await call(self._thread, self._target.raw, event)
        return result

    async def status(self) -> Status:
        """Its status; between two incarnations the state is `backoff`."""
        result: Status = await call(self._thread, self._target.status)
        return result

    async def memory(self) -> Memory | None:
        """The machine's memory that its processes hold now; None when none runs, and on systems other than Linux."""
        result: Memory | None = await call(self._thread, self._target.memory)
        return result

    def events(self, since: int | None = None) -> Block[Stream[AnyEvent]]:
        """Follow the agent's log, through its restarts, from position `since` (default: from now on)."""
        return Block(self._thread, Stream[AnyEvent].around, self._target.events, since)


class Turn(Stream[AnyEvent]):
    """One request's events, in order, up to the end of its turn."""

    @property
    def agent(self) -> str:
        """See `Turn`."""
        value: str = self._target.agent
        return value

    @property
    def over(self) -> bool:
        """See `Turn`."""
        value: bool = self._target.over
        return value

    @property
    def answer(self) -> Answer:
        """The turn's result."""
        value: Answer[Any] = self._target.answer
        return value

    async def delivery(self) -> Delivery:
        """The progress of the request by now, with the text that was read of its answer."""
        result: Delivery = await call_plain(self._thread, lambda: self._target.delivery)
        return result

    async def leave(self) -> None:
        """Stop waiting: a request that has not ended is withdrawn, or its turn interrupted."""
        await call_plain(self._thread, self._target.leave)

    async def finish(self) -> Answer:
        """Read to the end and return the answer."""
        await self._drained()
        result: Answer[Any] = await call(self._thread, self._target.finish)
        return result


class Run(Stream[AnyEvent]):
    """A one-shot run: events in order, then `answer`."""

    @property
    def directory(self) -> Path:
        """See `Run`."""
        value: Path = self._target.directory
        return value

    @property
    def failure(self) -> Exception | None:
        """The error that kept its process from getting ready, once it is known."""
        value: Exception | None = self._target.failure
        return value

    async def leave(self) -> None:
        """Stop, by the stop sequence, and do not wait for it."""
        await call_plain(self._thread, self._target.leave)

    async def finish(self) -> Answer:
        """Read to the end and return the answer."""
        await self._drained()
        result: Answer[Any] = await call(self._thread, self._target.finish)
        return result

    async def delivery(self) -> Delivery:
        """The progress of the request by now, with what has streamed of its answer."""
        result: Delivery = await call_plain(self._thread, lambda: self._target.delivery)
        return result

    @property
    def answer(self) -> Answer:
        """Its result."""
        value: Answer[Any] = self._target.answer
        return value

    async def kill(self) -> None:
        """Kill its process, without the stop sequence."""
        await call_plain(self._thread, self._target.kill)


class Batch(Stream[BatchResult]):
    """The results of a batch, as they end; made by `batch`."""

    async def progress(self) -> BatchProgress:
        """How far it is."""
        result: BatchProgress = await call_plain(self._thread, lambda: self._target.progress)
        return result

    async def stop(self) -> None:
        """Begin no more attempts; those that run go on to their end, and so does the iteration."""
        await call_plain(self._thread, self._target.stop)

    async def kill(self) -> None:
        """Kill what runs at once, without the stop sequences, and end."""
        await call_plain(self._thread, self._target.kill)


class Receipt(Proxy[_Receipt]):
    """The fate of one `request` (its id), and `why`, for a person."""

    @property
    def request(self) -> str:
        """See `Receipt`."""
        value: str = self._target.request
        return value

    @property
    def fate(self) -> Fate:
        """See `Receipt`."""
        value: Fate = self._target.fate
        return value

    @property
    def why(self) -> str:
        """See `Receipt`."""
        value: str = self._target.why
        return value

    @property
    def turn(self) -> str | None:
        """See `Receipt`."""
        value: str | None = self._target.turn
        return value

    async def answer(self) -> Answer:
        """Wait for the end of the turn that `Agent.queue` was promised; may be asked again, and given up."""
        result: Answer[Any] = await call(self._thread, self._target.answer)
        return result

    def __bool__(self) -> bool:
        return bool(self._target)


class Approval(Proxy[_Approval]):
    """A tool that wants to run, until somebody decides."""

    @property
    def agent(self) -> str:
        """See `Approval`."""
        value: str = self._target.agent
        return value

    @property
    def id(self) -> str:
        """See `Approval`."""
        value: str = self._target.id
        return value

    @property
    def tool(self) -> str:
        """See `Approval`."""
        value: str = self._target.tool
        return value

    @property
    def input(self) -> dict[str, Any]:
        """See `Approval`."""
        value: dict[str, Any] = self._target.input
        return value

    @property
    def description(self) -> str | None:
        """See `Approval`."""
        value: str | None = self._target.description
        return value

    @property
    def tool_call(self) -> str | None:
        """See `Approval`."""
        value: str | None = self._target.tool_call
        return value

    @property
    def asked(self) -> float:
        """See `Approval`."""
        value: float = self._target.asked
        return value

    @property
    def questions(self) -> tuple[MenuQuestion, ...]:
        """See `Approval`."""
        value: tuple[MenuQuestion, ...] = self._target.questions
        return value

    @property
    def diff(self) -> str | None:
        """See `Approval`."""
        value: str | None = self._target.diff
        return value

    @property
    def settled(self) -> str | None:
        """See `Approval`."""
        value: str | None = self._target.settled
        return value

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What can be decided; a question to the person is answered anew each time."""
        value: tuple[Choice, ...] = self._target.choices
        return value

    async def allow(self, input: dict[str, Any] | None = None, *, always: bool = False) -> bool:
        """Let the tool run, with another `input` if one is given."""
        result: bool = await call_plain(self._thread, self._target.allow, input, always=always)
        return result

    async def deny(self, message: str = "") -> bool:
        """Keep the tool from running; the model gets `message`."""
        result: bool = await call_plain(self._thread, self._target.deny, message)
        return result

    async def answer(self, *answers: str) -> bool:
        """Answer its `questions`, each with one of its options or a text of your own; several answers to a single question are joined."""
        result: bool = await call_plain(self._thread, self._target.answer, *answers)
        return result

    async def extend(self, seconds: float) -> bool:
        """Give it `seconds` from now in place of its deadline."""
        result: bool = await call_plain(self._thread, self._target.extend, seconds)
        return result

    async def wait(self) -> str:
        """Wait until it is settled; returns `settled`."""
        result: str = await call(self._thread, self._target.wait)
        return result


class Approvals(Stream[Approval]):
    """The open questions of an agent, and those to come, in order; ends when the agent is at rest."""

    def _item(self, item: Any) -> Approval:
        return Approval.around(item, self._thread)

    async def open(self) -> tuple[Approval, ...]:
        """Those without an answer, oldest first, handed out before or not."""
        return partial(each, Approval)(await call_plain(self._thread, self._target.open), self._thread)


def batch(
    tasks: Iterable[BatchTask],
    agents: ChildSpec | Plan | Sequence[ChildSpec | Plan],
    *,
    limit: int = 4,
    repeat: int = 1,
    results: str | Path | None = None,
    budget: float | None = None,
    retry: Retry = RETRY,
    keep: Keep = "none",
    seed: int | None = None,
) -> Block[Batch]:
    """Give each of `tasks` to each of `agents`: a block that gives the results as they end, and stops what runs when it is left."""
    return Block(
        current_thread(),
        Batch.around,
        _batch,
        tasks,
        agents,
        limit=limit,
        repeat=repeat,
        results=results,
        budget=budget,
        retry=retry,
        keep=keep,
        seed=seed,
    )
