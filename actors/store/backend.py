"""The port of a store: what any place must do that keeps the requests of a tree."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from proctor.actors.errors import AgentError
from proctor.actors.store.records import SendMark, StoredEnd, StoredRequest
from proctor.runtime.error_facts import Fault


class StoreError(AgentError):
    """A store cannot be opened, read or written; `place` is its file, `why` what the system says."""

    retryable = True
    fault: Fault = "machine"
    http_status = 503
    remedy = "see what the system says of its file and of the space on its disk"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"the store {place!r} {why}")
        self.place = place
        self.why = why


class StoreInUse(StoreError):
    """Another host has the store open; `pid` is its process, None where that is not known."""

    retryable = False
    http_status = 409
    remedy = "stop the other host first, or give this one a store of its own"

    def __init__(self, place: str, pid: int | None) -> None:
        super().__init__(place, "is in use by " + ("another host" if pid is None else f"process {pid}"))
        self.pid = pid


class StoreBackend(Protocol):
    """A place for requests and facts. Every method returns when what it did will survive the death of the host, and of the
    machine where the place is a disk; each raises `StoreError`. What returns nothing else may be called any number of times
    with the same arguments."""

    async def open(self) -> None:
        """Make it ready. Raises `StoreInUse` when another host has it, and `StoreError` for a place that is no store or that a
        later version wrote."""
        ...

    async def close(self) -> None:
        """Let another host have it; what was called before is finished first. A second call does nothing."""
        ...

    async def accept(self, request: StoredRequest) -> StoredRequest:
        """Keep a new request, and return it; or return the one that holds its key for its agent, and keep nothing."""
        ...

    async def send(self, id: str, mark: SendMark) -> None:
        """Mark a request as sent, or its mark as changed. Nothing happens to one that has ended or is not there."""
        ...

    async def end(self, id: str, end: StoredEnd) -> None:
        """Keep the end of a request. The first end stays: a second one is dropped."""
        ...

    async def requests(
        self, *, agent: str | None = None, key: str | None = None, open_only: bool = False
    ) -> Sequence[StoredRequest]:
        """The requests in the order in which they were accepted: of one agent, of one key, or those that have not ended."""
        ...

    async def put(self, agent: str, name: str, value: str | None) -> None:
        """Keep a fact of an agent in the place of the one of that name; None removes it."""
        ...

    async def facts(self) -> Mapping[str, Mapping[str, str]]:
        """All facts, by agent and name."""
        ...

    async def prune(self, before: float) -> int:
        """Remove the requests that ended before that time (Unix seconds), and return how many there were."""
        ...


@asynccontextmanager
async def opened(store: StoreBackend) -> AsyncGenerator[None]:
    """A block in which `store` is open. Entering raises `StoreError`."""
    await store.open()
    try:
        yield
    finally:
        await store.close()
