"""Keeps a board up to date from the host of a fleet, and sends it requests.

The control client blocks, so each of these has a thread of its own, which the end of the program does not wait for: a host
that hangs delays no key. The fleet is found by its name, so a host that dies and comes back is followed again.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from proctor.actors.client.sockets import Host, running_hosts
from proctor.actors.durations import format_duration
from proctor.cli.control_client import Client, ControlError, agent_path
from proctor.cli.top.board import Board, Record

RETRY = 0.5
"""Seconds between two looks for a host that is gone."""
LOOK = 2.0
"""Seconds between two looks at whether the host answers, and in which it must."""
EVENTS = 20
"""Lines about an agent's events that are kept."""
READ = 400
"""Events that are read for them: the parts of a text that streams have no line of their own."""

Report = Callable[[str, bool], None]
"""Shows what came of a request; true for an error."""


class Source(Protocol):
    """What a view needs of a fleet: its board, and requests about its agents."""

    board: Board

    def start(self) -> None:
        """Begin to follow the fleet."""

    def close(self) -> None:
        """Follow it no more."""

    def watch(self, agent: str | None) -> None:
        """Read the events of this agent in place of another, None for none."""

    def events(self) -> Sequence[str]:
        """The last events of the agent that is watched, a line each."""
        ...

    def post(self, agent: str, rest: str, body: Record | None, report: Report) -> None:
        """Send a request about an agent, and report what came of it."""


class Feed:
    """The `Source` of a host that runs. `timeout` in seconds, for each answer."""

    def __init__(self, host: Host, timeout: float) -> None:
        self.board = Board()
        self._host = host
        self._timeout = timeout
        self._closed = threading.Event()
        self._client = Client(host, timeout)
        self._log: _AgentLog | None = None

    def start(self) -> None:
        """Begin to follow the fleet."""
        _start_thread(self._follow)
        _start_thread(self._check)

    def close(self) -> None:
        """Follow it no more."""
        self._closed.set()
        self._client.close()
        self.watch(None)

    # -- the fleet

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow_host()
            except ControlError as error:
                self.board.put_trouble(str(error))
            self._closed.wait(RETRY)
            self._find_host()

    def _follow_host(self) -> None:
        client, asking = self._client, Client(self._host, self._timeout)
        self._take_snapshot(client)
        _start_thread(partial(self._follow_approvals, asking, client))
        try:
            self._follow_changes(client)
        finally:
            asking.close()

    def _follow_changes(self, client: Client) -> None:
        sequence = self.board.frame(0.0).fleet["sequence"]
        for event in client.stream("GET", f"/fleet/changes?since={sequence}"):
            self.board.put_trouble("")
            if event.kind == "snapshot":
                self._take_snapshot(client)
            elif event.kind == "end":
                self.board.put_trouble(f"the host of fleet {client.host.fleet!r} has ended")
            else:
                self.board.put(event.kind, event.data)

    def _follow_approvals(self, asking: Client, client: Client) -> None:
        """Follow the open approvals of the host, by a request of its own."""
        # those of a host before are not those of this one
        self.board.clear_approvals()
        try:
            for event in asking.stream("GET", "/approvals"):
                if event.kind == "approval":
                    self.board.put_approval(event.data, time.time())
                elif event.kind == "settled":
                    self.board.settle_approval(event.data["agent"], event.data["id"])
        except ControlError:
            pass  # the other stream says why
        finally:
            # a view without its approvals is followed anew, from the beginning
            client.close()

    def _take_snapshot(self, client: Client) -> None:
        snapshot = client.get("/fleet")
        host = snapshot.get("host") or socket.gethostname()
        self.board.put_snapshot(snapshot, fleet=client.host.fleet, host=host)

    def _find_host(self) -> None:
        found = next((host for host in running_hosts() if host.fleet == self._host.fleet), None)
        if found is not None and not self._closed.is_set():
            self._host, self._client = found, Client(found, self._timeout)

    def _check(self) -> None:
        """Look whether the host still answers: a stream that is silent does not say."""
        while not self._closed.wait(LOOK):
            try:
                Client(self._host, LOOK).check_host()
            except ControlError as error:
                self.board.put_trouble(str(error))
            else:
                self.board.put_trouble("")

    # -- an agent

    def watch(self, agent: str | None) -> None:
        """Read the events of this agent in place of another, None for none."""
        if self._log is not None:
            self._log.close()
        self._log = None if agent is None else _AgentLog(Client(self._host, self._timeout), agent, self.board)

    def events(self) -> Sequence[str]:
        """The last events of the agent that is watched, a line each."""
        return () if self._log is None else tuple(self._log.lines)

    def post(self, agent: str, rest: str, body: Record | None, report: Report) -> None:
        """Send a request about an agent, and report what came of it."""

        def send() -> None:
            try:
                result = Client(self._host, self._timeout).call("POST", agent_path(agent, rest), body)
            except ControlError as error:
                report(f"{agent}: {error}", True)
            else:
                report(f"{agent}: {_outcome(result)}", False)

        _start_thread(send)


class _AgentLog:
    """The last events of one agent, read by a thread until it is closed."""

    def __init__(self, client: Client, agent: str, board: Board) -> None:
        self.lines = deque[str](maxlen=EVENTS)
        self._client = client
        self._agent = agent
        self._board = board
        _start_thread(self._read)

    def close(self) -> None:
        """Read no more."""
        self._client.close()

    def _read(self) -> None:
        # it takes as long to load as all the rest, and the table does not need it
        from proctor.cli.ui.event_lines import event_lines

        lines = event_lines(self._agent)
        # one that has no log yet, or whose host has ended, shows no events; the board says why
        with suppress(ControlError):
            for event in self._client.stream("GET", agent_path(self._agent, f"events?tail={READ}")):
                if event.kind != "end":
                    self.lines.extend(lines(event.data))
                    self._board.touch()


def _outcome(result: Any) -> str:
    """What came of a request, from a receipt, a decision, an approval with more time, or the record of the agent."""
    if "seconds_left" in result:
        return f"{format_duration(result['seconds_left'])} left"
    state, why = result.get("fate") or result.get("settled") or result["state"], result.get("why")
    return f"{state}{f' ({why})' if why else ''}"


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()
