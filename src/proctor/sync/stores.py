"""proctor for plain code: stores of requests.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.actors.store.memory import MemoryStore as _MemoryStore
from proctor.actors.store.records import SendMark, StoredEnd, StoredRequest
from proctor.actors.store.sqlite import Store as _Store
from proctor.bridge.proxies import Proxy
from proctor.bridge.sync_face import call


class Store(Proxy[_Store]):
    """A `StoreBackend` in the file `path`, made when it is not there, with its folder."""

    def __init__(self, path: str | Path) -> None:
        self._target = _Store(path)

    @property
    def path(self) -> Path:
        """See `Store`."""
        value: Path = self._target.path
        return value

    def open(self) -> None:
        """See `StoreBackend.open`."""
        call(self._thread, self._target.open)

    def close(self) -> None:
        """See `StoreBackend.close`."""
        call(self._thread, self._target.close)

    def accept(self, request: StoredRequest) -> StoredRequest:
        """See `StoreBackend.accept`."""
        result: StoredRequest = call(self._thread, self._target.accept, request)
        return result

    def send(self, id: str, mark: SendMark) -> None:
        """See `StoreBackend.send`."""
        call(self._thread, self._target.send, id, mark)

    def end(self, id: str, end: StoredEnd) -> None:
        """See `StoreBackend.end`."""
        call(self._thread, self._target.end, id, end)

    def requests(
        self, *, agent: str | None = None, key: str | None = None, open_only: bool = False
    ) -> Sequence[StoredRequest]:
        """See `StoreBackend.requests`."""
        result: Sequence[StoredRequest] = call(
            self._thread, self._target.requests, agent=agent, key=key, open_only=open_only
        )
        return result

    def put(self, agent: str, name: str, value: str | None) -> None:
        """See `StoreBackend.put`."""
        call(self._thread, self._target.put, agent, name, value)

    def facts(self) -> Mapping[str, Mapping[str, str]]:
        """See `StoreBackend.facts`."""
        result: Mapping[str, Mapping[str, str]] = call(self._thread, self._target.facts)
        return result

    def prune(self, before: float) -> int:
        """See `StoreBackend.prune`."""
        result: int = call(self._thread, self._target.prune, before)
        return result


class MemoryStore(Proxy[_MemoryStore]):
    """A `StoreBackend` whose content lives as long as the object: a second tree that is given it finds what the first left."""

    def __init__(self) -> None:
        self._target = _MemoryStore()

    def open(self) -> None:
        """Nothing is to be made ready."""
        call(self._thread, self._target.open)

    def close(self) -> None:
        """Nothing is held."""
        call(self._thread, self._target.close)

    def accept(self, request: StoredRequest) -> StoredRequest:
        """See `StoreBackend.accept`."""
        result: StoredRequest = call(self._thread, self._target.accept, request)
        return result

    def send(self, id: str, mark: SendMark) -> None:
        """See `StoreBackend.send`."""
        call(self._thread, self._target.send, id, mark)

    def end(self, id: str, end: StoredEnd) -> None:
        """See `StoreBackend.end`."""
        call(self._thread, self._target.end, id, end)

    def requests(
        self, *, agent: str | None = None, key: str | None = None, open_only: bool = False
    ) -> Sequence[StoredRequest]:
        """See `StoreBackend.requests`."""
        result: Sequence[StoredRequest] = call(
            self._thread, self._target.requests, agent=agent, key=key, open_only=open_only
        )
        return result

    def put(self, agent: str, name: str, value: str | None) -> None:
        """See `StoreBackend.put`."""
        call(self._thread, self._target.put, agent, name, value)

    def facts(self) -> Mapping[str, Mapping[str, str]]:
        """See `StoreBackend.facts`."""
        result: Mapping[str, Mapping[str, str]] = call(self._thread, self._target.facts)
        return result

    def prune(self, before: float) -> int:
        """See `StoreBackend.prune`."""
        result: int = call(self._thread, self._target.prune, before)
        return result
