"""A store in memory: for tests, and for trees whose keys need not outlive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import trio

from proctor.actors.store.records import SendMark, StoredEnd, StoredRequest
from proctor.runtime.trio_only import check_in_trio


class MemoryStore:
    """A `StoreBackend` whose content lives as long as the object: a second tree that is given it finds what the first left."""

    def __init__(self) -> None:
        self._requests: dict[str, StoredRequest] = {}
        self._facts: dict[str, dict[str, str]] = {}

    async def open(self) -> None:
        """Nothing is to be made ready."""
        check_in_trio("proctor.MemoryStore")
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        """Nothing is held."""
        await trio.lowlevel.checkpoint()

    async def accept(self, request: StoredRequest) -> StoredRequest:
        """See `StoreBackend.accept`."""
        await trio.lowlevel.checkpoint()
        for kept in self._requests.values():
            if (kept.agent, kept.key) == (request.agent, request.key) and kept.holds_key:
                return kept
        self._requests[request.id] = request
        return request

    async def send(self, id: str, mark: SendMark) -> None:
        """See `StoreBackend.send`."""
        await trio.lowlevel.checkpoint()
        kept = self._requests.get(id)
        if kept is not None and kept.end is None:
            self._requests[id] = msgspec.structs.replace(kept, sent=mark)

    async def end(self, id: str, end: StoredEnd) -> None:
        """See `StoreBackend.end`."""
        await trio.lowlevel.checkpoint()
        kept = self._requests.get(id)
        if kept is not None and kept.end is None:
            self._requests[id] = msgspec.structs.replace(kept, end=end)

    async def requests(
        self, *, agent: str | None = None, key: str | None = None, open_only: bool = False
    ) -> Sequence[StoredRequest]:
        """See `StoreBackend.requests`."""
        await trio.lowlevel.checkpoint()
        return [
            kept
            for kept in self._requests.values()
            if agent in (None, kept.agent) and key in (None, kept.key) and not (open_only and kept.end)
        ]

    async def put(self, agent: str, name: str, value: str | None) -> None:
        """See `StoreBackend.put`."""
        await trio.lowlevel.checkpoint()
        facts = self._facts.setdefault(agent, {})
        facts.pop(name, None)
        if value is not None:
            facts[name] = value

    async def facts(self) -> Mapping[str, Mapping[str, str]]:
        """See `StoreBackend.facts`."""
        await trio.lowlevel.checkpoint()
        return {agent: dict(facts) for agent, facts in self._facts.items() if facts}

    async def prune(self, before: float) -> int:
        """See `StoreBackend.prune`."""
        await trio.lowlevel.checkpoint()
        old = [id for id, kept in self._requests.items() if kept.end is not None and kept.end.ended < before]
        for id in old:
            del self._requests[id]
        return len(old)
