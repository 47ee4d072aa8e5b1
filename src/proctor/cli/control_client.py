"""A client of the control sockets of the fleets that run under this user.

On the standard library alone, and without its HTTP client, so that a command starts at once. Requests are of HTTP/1.0: a
response ends with its connection. A host that does not answer within the timeout is an error, and so is one that ends.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from proctor.actors.client.sockets import ENDING, LOOK, SILENCE, TIMEOUT, Host, connected, host_at
from proctor.cli.exit_status import DEADLINE, FAILED, LIMITED

LONGEST = 1e6
"""Seconds of the longest wait; a time limit beyond it is none."""
STATUSES: Mapping[int, int] = {429: LIMITED, 504: DEADLINE}
"""The exit statuses of problems, by their HTTP status; else `FAILED`."""
REMEDIES: Mapping[str, str] = {
    "no-such-agent": "proctor ps lists the agents",
    "no-such-question": "proctor approvals lists the open ones",
    "not-running": "wait until it runs, or start it: proctor start",
    "running": "proctor restart stops it first",
}
"""What to do about a problem, by its type, where the remedy of the host is a request."""


class ControlError(Exception):
    """A verb failed: the text says what, where and what to do; `status` is the exit status."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class Event(NamedTuple):
    """A server-sent event."""

    kind: str
    data: Any


def agent_path(name: str, rest: str) -> str:
    """The path of a request about an agent."""
    return f"/agents/{quote(name, safe='')}/{rest}"


class Client:
    """A client of one host. `timeout` in seconds, for each answer."""

    def __init__(self, host: Host, timeout: float = TIMEOUT) -> None:
        self.host = host
        self._timeout = min(timeout, LONGEST)
        self._connection: socket.socket | None = None
        self._closed = False

    def close(self) -> None:
        """End the request that goes on, from another thread; it raises `ControlError`. No other one is sent."""
        self._closed = True
        if (connection := self._connection) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def get(self, path: str) -> Any:
        """The record at `path`. Raises `ControlError`."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the record of its response. Raises `ControlError`."""
        with self._response(method, path, body, "application/json") as (_, response):
            return json.loads(response.read())

    def check_host(self) -> None:
        """Raise `ControlError` unless the host answers."""
        with self._response("GET", "/healthz", None, "application/json", patient=False):
            pass

    def stream(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float = math.inf,
        awaited: str = "",
    ) -> Generator[Event]:
        """Send a request and yield the events of its response; the last one is `end`. Raises `ControlError`, also when what is
        `awaited` has not come within `seconds`."""
        ends, kind, last = time.monotonic() + seconds, "", ""
        with self._response(method, path, body, "text/event-stream") as (connection, response):
            for line in self._lines(connection, response, ends, awaited):
                field, _, text = line.partition(": ")
                if field == "event":
                    kind = text
                elif field == "data":
                    last = kind
                    yield Event(kind, json.loads(text))
            if last != "end":
                raise ConnectionResetError

    def _lines(
        self, connection: socket.socket, response: IO[bytes], ends: float, awaited: str
    ) -> Generator[str]:
        while (left := ends - time.monotonic()) > 0:
            connection.settimeout(min(SILENCE, left))
            try:
                line = response.readline()
            except TimeoutError:
                if time.monotonic() < ends:
                    raise
                break
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\n")
        raise ControlError(f"{awaited} has not come in time", DEADLINE)

    @contextmanager
    def _response(
        self, method: str, path: str, body: Mapping[str, Any] | None, accept: str, *, patient: bool = True
    ) -> Generator[tuple[socket.socket, IO[bytes]]]:
        try:
            with (
                connected(self.host.path, self._timeout) as connection,
                connection.makefile("rb") as response,
            ):
                self._connection = connection
                if self._closed:
                    raise ControlError("the client is closed")
                connection.sendall(_request(method, path, body, accept))
                # a restart may take minutes; a host that answers nothing else meanwhile hangs
                while patient and not select.select([connection], [], [], self._timeout)[0]:
                    self.check_host()
                _check(response)
                yield connection, response
        # a full queue of connections (EAGAIN) is a host that accepts none
        except (TimeoutError, BlockingIOError) as error:
            raise ControlError(self.host.silent, DEADLINE) from error
        except (OSError, ValueError) as error:
            raise ControlError(self._why_closed()) from error

    def _why_closed(self) -> str:
        if self._closed:
            return "the client is closed"
        # of a process that is killed some connections close before others
        if wait_ended(self.host, ENDING):
            return self.host.ended
        return self.host.refusing


def is_alive(host: Host) -> bool:
    """Whether this process still listens at the socket."""
    found = host_at(*os.path.split(host.path))
    return found is not None and found.pid == host.pid


def wait_ended(host: Host, seconds: float) -> bool:
    """Wait until the process of a host has ended and its socket is gone; returns whether they did in time."""
    ends = time.monotonic() + seconds
    try:
        process = os.pidfd_open(host.pid)
    except (
        AttributeError,
        OSError,
    ):  # it has ended, is in another namespace, or the system has no such descriptors
        process = None
    if process is not None:
        try:
            select.select([process], [], [], min(seconds, LONGEST))
        finally:
            os.close(process)
    while (alive := is_alive(host)) and time.monotonic() < ends:
        time.sleep(LOOK)
    return not alive


def _request(method: str, path: str, body: Mapping[str, Any] | None, accept: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.0", "host: localhost", f"accept: {accept}"]
    if body is not None:
        head += ["content-type: application/json", f"content-length: {len(data)}"]
    return "\r\n".join([*head, "", ""]).encode() + data


def _check(response: IO[bytes]) -> None:
    """Read the head of a response. Raises `ControlError` for an error of the host, and OSError when it ended before it answered."""
    first, kind = response.readline(), ""
    while line := response.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        kind = value.strip() if name.lower() == "content-type" else kind
    if not first.startswith(b"HTTP/1."):
        raise ConnectionResetError
    if int(first.split()[1]) >= 400:
        raise _problem(response.read(), kind)


def _problem(data: bytes, kind: str) -> ControlError:
    """The error of a response. Raises ValueError for one that is cut short."""
    if kind != "application/problem+json":
        return ControlError("the host sent an error without a reason; look at its output")
    return problem_of(json.loads(data))


def problem_of(record: Mapping[str, Any]) -> ControlError:
    """The error for the record of a problem."""
    name = record["type"].rpartition(":")[2]
    text = f"{record['detail']}; {REMEDIES.get(name, record['remedy'])}"
    return ControlError(text, STATUSES.get(record["status"], FAILED))
