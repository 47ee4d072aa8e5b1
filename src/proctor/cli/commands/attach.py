"""`proctor attach`: follows one agent live in a terminal, and sends it what is typed.

Shows its last turn, then what comes. Leaving it never stops the agent. A host that dies is waited for, and the next one followed from its
first event on; the terminal stays as it is, line by line, so that nothing has to be restored when this command is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from proctor.actors.client.connection import Connection, HostError
from proctor.actors.client.problems import RemoteError
from proctor.actors.client.sockets import Host, running_hosts
from proctor.actors.errors import AgentError
from proctor.cli.exit_status import BY_SIGNAL, FAILED, OK, STDOUT_GONE
from proctor.cli.interrupts import HANDLED_SIGNALS, not_ignored
from proctor.cli.ui.attached import Approvals, Hint, Leave, Record, Send
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import WHOLE, money, one_line
from proctor.cli.ui.transcript import Transcript
from proctor.cli.ui.verdict import phrase_of
from proctor.protocols import vocabulary as v
from proctor.runtime.errors import SupervisionError
from proctor.runtime.exits import DeliveryError

RETRY = 0.5
"""Seconds between two looks for a host or a log that is gone."""
TAIL = 2000
"""Events in which the last turn is looked for."""
NAMED = 50
"""Requests among which the text of a prompt is looked for."""
LINE = 4096
"""Bytes of one typed line, a limit of the system's terminals."""
_NOTED = ("parked", "backoff", "failed", "stalled", "stopped", "done")
"""The states that no event shows."""
_REFUSED = (AgentError, DeliveryError, SupervisionError)


def attach(host: Host, agent: str, timeout: float) -> int:
    """Follow the agent of this name until the person leaves, and return the exit status."""
    return trio.run(Attached(host, agent, timeout).run)


class Attached:
    """A terminal that follows one agent of the fleet of `host`, which must answer within `timeout` seconds."""

    def __init__(self, host: Host, agent: str, timeout: float) -> None:
        self._agent = agent
        self._timeout = timeout
        self._connection = Connection(host, timeout)
        self._out = Output(1)
        self._transcript = Transcript(safe=True, shared=True, dim=True)
        self._approvals = Approvals()
        self._prompts: dict[str, str] = {}
        self._state = ""
        self._position: int | None = None
        self._host: tuple[int, str] | None = None
        self._is_stopping = False
        self._trouble = ""
        self._status = OK
        self._all = trio.CancelScope()
        self._one_writer = trio.Lock()

    async def run(self) -> int:
        """Follow it until the person leaves."""
        try:
            with self._all:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._listen)
                    nursery.start_soon(self._read_lines, nursery)
                    nursery.start_soon(self._follow)
        except* (BrokenPipeError, OutputFailed):  # the terminal is gone
            self._status = STDOUT_GONE
        return self._status

    def _leave(self, status: int = OK) -> None:
        self._status = status
        self._all.cancel("the terminal leaves the agent")

    async def _listen(self, task_status: trio.TaskStatus[None]) -> None:
        numbers = not_ignored(*HANDLED_SIGNALS)
        if not numbers:
            task_status.started()
            return
        with trio.open_signal_receiver(*numbers) as signals:
            task_status.started()
            async for number in signals:
                # Ctrl-C is one of the two ways to leave, so it is no failure
                self._leave(OK if number == signal.SIGINT else BY_SIGNAL + number)

    # -- what is shown

    async def _show(self, events: Sequence[v.AnyEvent]) -> None:
        for event in events:
            if line := self._line_of(event):
                await self._note(line)
            shown = self._transcript.take([event])
            await self._write("".join(part.out + part.err for part in shown))

    async def _note(self, line: str) -> None:
        shown = self._transcript.note(line)
        await self._write(shown.out + shown.err)

    async def _notes(self, lines: Sequence[str]) -> None:
        for line in lines:
            await self._note(line)

    async def _write(self, text: str) -> None:
        # the tasks of this command share one terminal
        async with self._one_writer:
            await self._out.write(text.encode("utf-8", "replace"))

    def _line_of(self, event: v.AnyEvent) -> str:
        """The line for an event that a transcript of one run has none for."""
        match event:
            case v.Notice(code="sent", data={"ticket": str(ticket)}):
                prompt = self._prompts.get(ticket, "")
                return f"> {one_line(prompt, WHOLE)}" if prompt else "> a prompt"
            case v.TurnEnded():
                return _end_of(event)
            case v.Exited(outcome=outcome) if outcome not in ("ok", "stopped"):
                return f"its process {phrase_of(outcome)}"
            case _:
                return ""

    # -- what is followed

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_host()
            except HostError as error:
                await self._lost(str(error))
            await self._next_host()

    async def _follow_host(self) -> None:
        """Follow it on this host. Raises `HostError` when that has ended or hangs."""
        snapshot = await self._connection.call("GET", "/fleet")
        record = _record_of(self._agent, snapshot)
        if record is None:
            return await self._gone()
        fleet = self._connection.host.fleet
        if self._position is None:
            text = f"attached to {fleet}/{self._agent}; Ctrl-C or Ctrl-D leaves it as it is, /help shows what can be typed"
            await self._note(text)
            await self._show_last_turn()
        else:
            await self._note(f"the host of fleet {fleet!r} is back: process {snapshot['pid']}")
        host = (snapshot["pid"], snapshot["since"])
        if self._host not in (None, host):
            self._position = 0  # a host begins its logs anew
        self._host, self._trouble = host, ""
        await self._show_state(record)
        lost, self._is_stopping = list[HostError](), False
        async with trio.open_nursery() as nursery:
            for follow in (self._follow_events, self._follow_approvals, self._follow_changes):
                nursery.start_soon(self._until_lost, follow, lost, nursery.cancel_scope)
        raise lost[0]

    async def _until_lost(
        self, follow: Callable[[], Awaitable[None]], lost: list[HostError], scope: trio.CancelScope
    ) -> None:
        """Follow something of a host until that is lost, and then end what follows the rest of it."""
        try:
            await follow()
            lost.append(HostError(f"the host of fleet {self._connection.host.fleet!r} is stopping"))
            self._is_stopping = True
        except HostError as error:
            lost.append(error)
        scope.cancel("the host is lost")

    async def _gone(self) -> None:
        await self._note(f"{self._agent} is not in the fleet {self._connection.host.fleet!r} any more")
        self._leave(FAILED)

    async def _lost(self, why: str) -> None:
        self._approvals.clear()
        if why != self._trouble:
            self._trouble = why
            await self._note(f"{one_line(why, WHOLE)}; waiting for the next one, Ctrl-C leaves")

    async def _next_host(self) -> None:
        last, is_leaving = self._connection.host, self._is_stopping
        while True:
            await trio.sleep(RETRY)
            hosts = await trio.to_thread.run_sync(running_hosts, abandon_on_cancel=True)
            host = next((one for one in hosts if one.fleet == last.fleet), None)
            if host is None:
                is_leaving = False
            # one that stops in order still answers for a while
            elif not (is_leaving and host.pid == last.pid):
                break
        self._connection = Connection(host, self._timeout)

    async def _show_last_turn(self) -> None:
        events = list[v.AnyEvent]()

        async def take(event: v.AnyEvent) -> None:
            events.append(event)

        self._position = 0
        await self._read_events(f"tail={TAIL}&follow=false", take)
        begin = _last_turn(events)
        if begin is None and len(events) >= TAIL:
            await self._note(f"the last {TAIL} events of its turn; proctor logs {self._agent} has all")
        await self._name_prompts()
        await self._show(events[begin or 0 :])

    async def _follow_events(self) -> None:
        async def take(event: v.AnyEvent) -> None:
            await self._name_prompt(event)
            await self._show([event])

        while True:
            await self._read_events(f"since={self._position}", take)
            # it is at rest, or has not started: its state is shown, and its log goes on when it is started
            await trio.sleep(RETRY)

    async def _read_events(self, query: str, take: Callable[[v.AnyEvent], Awaitable[None]]) -> None:
        """Read events until they end. Raises `HostError`."""
        try:
            async with self._connection.stream(self._path(f"events?{query}"), _event, self._agent) as stream:
                async for event in stream:
                    self._position = self._position if stream.id is None else stream.id + 1
                    await take(event)
        except HostError:
            raise
        except _REFUSED as error:  # it has not started yet
            if isinstance(error, RemoteError) and error.kind == "ahead-of-log":
                self._position = 0  # the log was begun anew

    async def _name_prompt(self, event: v.AnyEvent) -> None:
        match event:
            case v.Notice(code="sent", data={"ticket": ticket}) if ticket not in self._prompts:
                await self._name_prompts()
            case _:
                pass

    async def _name_prompts(self) -> None:
        """Look up the texts of its prompts, which events do not have."""
        try:
            path = f"/requests?agent={quote(self._agent, safe='')}&limit={NAMED}"
            found = await self._connection.call("GET", path)
        except HostError:
            raise
        except _REFUSED:  # its store cannot be read: the turn is shown all the same
            return
        self._prompts = {request["id"]: request["prompt"] for request in found["requests"]}

    async def _follow_approvals(self) -> None:
        async with self._connection.stream("/approvals", _kind_and_data) as stream:
            async for kind, record in stream:
                if record["agent"] != self._agent:
                    continue
                if kind == "settled":
                    await self._notes(self._approvals.settle(record["id"]))
                else:
                    await self._notes(self._approvals.put(record))

    async def _follow_changes(self) -> None:
        async with self._connection.stream("/fleet/changes", _kind_and_data) as stream:
            async for kind, record in stream:
                if kind == "agent" and record["name"] == self._agent:
                    await self._show_state(record)
                elif kind == "snapshot" and not await self._is_there():  # some agents have gone
                    await self._gone()

    async def _is_there(self) -> bool:
        return _record_of(self._agent, await self._connection.call("GET", "/fleet")) is not None

    async def _show_state(self, record: Record) -> None:
        before, self._state = self._state, record["state"]
        if self._state == before:
            return
        if self._state in _NOTED:
            why = f": {record['evidence']}" if record["evidence"] else ""
            await self._note(one_line(f"{self._agent} is {self._state}{why}", WHOLE))
        elif before in _NOTED:
            await self._note(f"{self._agent} is back: {self._state}")

    # -- what is typed

    async def _read_lines(self, nursery: trio.Nursery) -> None:
        while True:
            # no read in a thread: that could not be abandoned
            await trio.lowlevel.wait_readable(0)
            try:
                data = os.read(0, LINE)
            except OSError:  # the terminal is gone
                data = b""
            if not data:
                return self._leave()
            self._transcript.end_line()
            typed = self._approvals.read(data.decode("utf-8", "replace"))
            match typed:
                case Leave():
                    return self._leave()
                case Hint(lines):
                    await self._notes(lines)
                case Send():
                    # beside the next line: a command line may take seconds to take a text
                    nursery.start_soon(self._send, typed)

    async def _send(self, request: Send) -> None:
        try:
            result = await self._connection.call(
                "POST", self._path(request.rest), request.body, agent=self._agent
            )
        except _REFUSED as error:
            await self._note(one_line(f"not sent: {error}", WHOLE))
            return
        fate = result.get("fate", "")
        if fate == "refused" and request.otherwise is not None:
            await self._send(request.otherwise)
        elif fate:
            why = f" ({result['why']})" if result["why"] else ""
            await self._note(one_line(f"{_FATES.get(fate, fate)}{why}", WHOLE))
        elif request.body is not None and not _is_as_decided(request.body, result):
            await self._note(one_line(f"too late: {result['settled']}"))

    def _path(self, rest: str) -> str:
        return f"/agents/{quote(self._agent, safe='')}/{rest}"


_FATES: Mapping[str, str] = {"delivered": "taken into the running turn", "queued": "queued"}


def _record_of(agent: str, snapshot: Record) -> Record | None:
    return next((record for record in snapshot["agents"] if record["name"] == agent), None)


def _kind_and_data(kind: str, data: Any) -> tuple[str, Record]:
    return kind, data


def _event(kind: str, data: Any) -> v.AnyEvent:
    event: v.AnyEvent = msgspec.convert(data, v.AnyEvent)
    return event


def _last_turn(events: Sequence[v.AnyEvent]) -> int | None:
    """Where the last turn begins among these events, with its prompt; None where none does."""
    begins = (number for number in reversed(range(len(events))) if isinstance(events[number], v.TurnStarted))
    started = next(begins, None)
    if started is None:
        return None
    for number in reversed(range(started)):
        match events[number]:
            case v.Notice(code="sent"):
                return number
            case v.TurnEnded():
                break
            case _:
                pass
    return started


def _end_of(event: v.TurnEnded) -> str:
    why = "" if event.ending == "completed" else one_line(event.error or event.detail or "")
    facts = ", ".join(filter(None, (money(event.cost_usd), why)))
    return f"— turn {event.ending.replace('_', ' ')}{f' ({facts})' if facts else ''}"


def _is_as_decided(body: Record, result: Record) -> bool:
    settled: str = result["settled"]
    return settled == ("denied" if body["decision"] == "deny" else "allowed")


def check_terminal() -> str:
    """Why this command cannot be attached to its terminal, "" if it can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "attach needs a terminal; proctor logs -f follows an agent, proctor send sends it a prompt"
    # keys from before belong to nothing that is shown
    termios.tcflush(0, termios.TCIFLUSH)
    return ""
