"""Notifications of a fleet: somebody is needed, an agent failed, was parked or came back, a budget is near, all is done.

They go to a webhook, to a command, or to both, each with a queue of its own: what is slow or gone delays neither the fleet nor the other. One is
repeated until it is taken, at most for a day, always under the same id. With a store it is kept there until then, and the next host goes on: it comes
at least once, and twice where a host dies between the delivery and the note of it; a receiver drops the second by its id.
"""

from __future__ import annotations

import hmac
import logging
import ssl
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.handle import Agent
from proctor.actors.fleet.schema import NotifyTable, Occasion
from proctor.actors.specs import Supervisor
from proctor.actors.store.backend import StoreBackend, StoreError, opened
from proctor.protocols.lenient import decoded_or
from proctor.protocols.vocabulary import Notice

LOOK = 1.0
"""Seconds between two looks at the agents."""
MAX_QUEUED = 1000
"""Notifications that wait for one target; then the oldest is dropped."""
TIMEOUT = 10.0
"""Seconds in which a webhook must answer, and a command end."""
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_TRY = 1.0, 300.0, 86400.0
"""Seconds between two attempts, at first and at last, and those after which one is given up."""
LAST_WAIT = 5.0
"""Seconds in which the last ones are sent when the fleet has ended."""
SIGNATURE = "X-Proctor-Signature"
_BUDGET = ("budget_near", "budget_exceeded")
_GOOD = ("idle", "working", "blocked", "done")
_log = logging.getLogger("proctor.notify")


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, `at` Unix seconds. `id` is the same at each attempt; `approval` is the id of the open one, and `tool` what wants to run."""

    id: str
    at: float
    fleet: str
    occasion: Occasion
    text: str
    agent: str | None = None
    approval: str | None = None
    tool: str | None = None


class Refused(Exception):
    """A target did not take a notification; `is_final`: it never will."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


@attrs.define(eq=False)
class Target:
    """A place that notifications go to, by `send`; `key` is that of its own in the `store` that keeps what waits, None for memory alone."""

    name: str
    send: Callable[[Notification], Awaitable[None]]
    key: str = ""
    store: StoreBackend | None = None
    waiting: deque[Notification] = attrs.field(factory=deque[Notification])
    _news: trio.Event = attrs.field(factory=trio.Event)

    async def put(self, one: Notification) -> None:
        """Queue one, and keep it."""
        dropped = self._queue(one)
        await self._keep(one.id, msgspec.json.encode(one).decode())
        for gone in dropped:
            await self._keep(gone.id, None)

    async def restore(self, kept: Mapping[str, str]) -> None:
        """Queue what an earlier host has kept, by id, as far as it is not too old to be sent."""
        known = {id: decoded_or(None, Notification, text.encode()) for id, text in kept.items()}
        found = sorted(filter(None, known.values()), key=lambda one: one.at)
        fresh = [one for one in found if time.time() - one.at < LONGEST_TRY]
        dropped = [gone for one in fresh for gone in self._queue(one)]
        for id in known.keys() - {one.id for one in fresh} | {one.id for one in dropped}:
            await self._keep(id, None)

    def _queue(self, one: Notification) -> list[Notification]:
        """Queue one. Returns the oldest, if the queue is full."""
        dropped = [self.waiting.popleft()] if len(self.waiting) >= MAX_QUEUED else []
        for gone in dropped:
            _log.warning("%s is too slow: a notification is dropped: %s", self.name, gone.text)
        self.waiting.append(one)
        self._news.set()
        return dropped

    async def _keep(self, id: str, text: str | None) -> None:
        if self.store is None:
            return
        try:
            # a store works in the order of the calls: what is delivered at once is not kept after it was removed
            await self.store.put(self.key, id, text)
        except StoreError as error:
            # it is sent all the same, as long as this host runs
            _log.warning("a notification for %s cannot be kept: %s", self.name, error)

    async def run(self) -> None:
        """Send what comes, in order."""
        while True:
            while self.waiting:
                await self._deliver(one := self.waiting[0])
                # before it leaves the queue: an empty one lets the host end
                await self._keep(one.id, None)
                # a full queue may have dropped it meanwhile
                if self.waiting and self.waiting[0] is one:
                    self.waiting.popleft()
            self._news = trio.Event()
            await self._news.wait()

    async def _deliver(self, one: Notification) -> None:
        # by its own age: a host that restarts does not begin its day anew
        pause, ends = FIRST_PAUSE, trio.current_time() + LONGEST_TRY - max(0.0, time.time() - one.at)
        while True:
            try:
                return await self.send(one)
            except Refused as error:
                if error.is_final or trio.current_time() >= ends:
                    return _log.warning("%s does not take a notification: %s: %s", self.name, error, one.text)
                if pause == FIRST_PAUSE:
                    _log.warning("%s cannot be notified yet: %s", self.name, error)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class Notifier:
    """The notifications of the fleet of this name, as the table of its file says. `store` keeps them until they are delivered; it is for this alone."""

    def __init__(self, fleet: str, table: NotifyTable, store: StoreBackend | None = None) -> None:
        self._fleet = fleet
        self._occasions = table.on
        self._store = store
        self.targets: list[Target] = []
        if table.webhook is not None:
            send = partial(post, table.webhook, table.secret or "")
            self.targets.append(Target("the webhook", send, "webhook"))
        if table.command:
            send = partial(call, table.command)
            self.targets.append(Target(f"the command {table.command[0]!r}", send, "command"))
        self._watches: dict[str, Watch] = {}

    async def run(
        self,
        sup: Supervisor,
        names: Mapping[str, str],
        absent: Mapping[str, str],
        is_done: Callable[[], bool],
    ) -> None:
        """Notify until the tree has ended, and of that if it `is_done`. `names` are those of its agents by path, `absent` has why one is left out."""
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
            await self._restore(stack)
            for target in self.targets:
                nursery.start_soon(target.run)
            nursery.start_soon(self._watch, sup, names, absent)
            await sup.wait_stopped()
            if is_done():
                await self._put("done", "all prompts are answered")
            with trio.move_on_after(LAST_WAIT):
                while any(target.waiting for target in self.targets):  # noqa: ASYNC110  # two queues
                    await trio.sleep(LOOK / 10)
            nursery.cancel_scope.cancel("the fleet has ended")

    async def _restore(self, stack: AsyncExitStack) -> None:
        """Open the store, and take over what an earlier host has not delivered."""
        if self._store is None:
            return
        try:
            await stack.enter_async_context(opened(self._store))
            kept = await self._store.facts()
        except StoreError as error:
            _log.warning("notifications do not outlive this host: %s", error)
            return
        for target in self.targets:
            target.store = self._store
            await target.restore(kept.get(target.key, {}))

    async def _watch(self, sup: Supervisor, names: Mapping[str, str], absent: Mapping[str, str]) -> None:
        while True:
            for name in list(names.values()):
                watch = self._watches.setdefault(name, Watch(sup.agent(name)))
                for occasion, text, more in watch.look(absent.get(name)):
                    await self._put(occasion, text, agent=name, **more)
            await trio.sleep(LOOK)

    async def _put(self, occasion: Occasion, text: str, **more: str | None) -> None:
        if self._occasions is not None and occasion not in self._occasions:
            return
        one = Notification(
            id=str(uuid.uuid4()), at=time.time(), fleet=self._fleet, occasion=occasion, text=text, **more
        )
        for target in self.targets:
            await target.put(one)


News = tuple[Occasion, str, dict[str, str | None]]


@attrs.define
class Watch:
    """What was seen of one agent."""

    agent: Agent
    _state: str = ""
    _approvals: frozenset[str] = frozenset()
    _position: int = 0

    def look(self, absent: str | None) -> list[News]:
        """What has happened since the last look. `absent`: why the agent is left out."""
        kept = self.agent.kept_state()
        if absent is not None:
            return self._changed("failed", absent)
        if kept is None:
            return []
        status = kept.held_status()
        return [*self._changed(status.state, status.evidence), *self._asked(kept), *self._noticed(kept)]

    def _changed(self, state: str, why: str) -> list[News]:
        before, name = self._state, self.agent.name
        if state in ("failed", "parked"):
            self._state = state
            occasion: Occasion = "failed" if state == "failed" else "parked"
            return [] if before == state else [(occasion, f"{name} {state}: {why}", {})]
        if state in _GOOD:
            self._state = ""
            return [("back", f"{name} is back: {state}", {})] if before else []
        return []

    def _asked(self, kept: AgentState) -> list[News]:
        before, asked = self._approvals, kept.approvals.open()
        self._approvals = frozenset(one.id for one in asked)
        return [
            ("approval", f"{one.agent} asks to run {one.tool}", {"approval": one.id, "tool": one.tool})
            for one in asked
            if one.id not in before
        ]

    def _noticed(self, kept: AgentState) -> list[News]:
        events, self._position = list(kept.log.recent(self._position)), kept.log.end
        return [
            ("budget", f"{self.agent.name}: {event.text}", {})
            for event in events
            if isinstance(event, Notice) and event.code in _BUDGET
        ]


async def post(url: str, secret: str, one: Notification) -> None:
    """Send a notification to a webhook: JSON, signed where there is a secret. Raises `Refused`."""
    # In a thread: the standard library's client goes where it is sent, and nowhere else; no proxy, no redirect.
    await trio.to_thread.run_sync(
        _post, url, secret.encode(), msgspec.json.encode(one), abandon_on_cancel=True
    )


def _post(url: str, secret: bytes, body: bytes) -> None:
    place = urlsplit(url)
    headers = {"content-type": "application/json", "user-agent": "proctor"}
    if secret:
        headers[SIGNATURE] = f"sha256={hmac.digest(secret, body, 'sha256').hex()}"
    if place.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(
            place.netloc, timeout=TIMEOUT, context=ssl.create_default_context()
        )
    else:
        connection = HTTPConnection(place.netloc, timeout=TIMEOUT)
    try:
        connection.request(
            "POST", f"{place.path or '/'}{f'?{place.query}' if place.query else ''}", body, headers
        )
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise Refused(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if not 200 <= status < 300:
        # what is wrong with the request stays wrong; a limit or a time-out passes
        raise Refused(f"status {status}", is_final=400 <= status < 500 and status not in (408, 425, 429))


async def call(command: tuple[str, ...], one: Notification) -> None:
    """Run a command with the notification as JSON on stdin. Raises `Refused`."""
    status: int | None = None
    try:
        with trio.move_on_after(TIMEOUT):
            done = await trio.run_process(
                command, stdin=msgspec.json.encode(one), capture_stdout=True, capture_stderr=True, check=False
            )
            status = done.returncode
    except OSError as error:
        raise Refused(str(error)) from error
    if status != 0:
        raise Refused(f"it took more than {TIMEOUT:g} s" if status is None else f"exit status {status}")
