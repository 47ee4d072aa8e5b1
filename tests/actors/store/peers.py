"""A command line that counts its prompts, and a store whose host dies at one of its calls."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NoReturn, TypeVar, Unpack

import trio

from proctor.actors.plan.options import AgentOptions
from proctor.actors.store.backend import StoreBackend, StoreError
from proctor.actors.store.records import SendMark, StoredEnd, StoredRequest
from proctor.actors.transport.memory import Peer, PeerStreams
from proctor.runtime.spec import ChildSpec
from tests.actors.spoken import Speaker, spec_of
from tests.protocols.lines import INIT, line

T = TypeVar("T")


def spec_with_home(peer: Peer, **options: Unpack[AgentOptions]) -> ChildSpec:
    """The agent `agent`, at home in a place of its peer's own: its conversation has the id of all others here, and two agents of
    one home must not run one conversation, in whatever process."""
    chosen: AgentOptions = {"home": "user", "env": {"HOME": f"/{os.getpid()}/{id(peer)}"}, **options}
    return spec_of(peer, **chosen)


class Counting:
    """A peer that notes each prompt before it answers as `Speaker` does."""

    def __init__(self) -> None:
        self.prompts = Counter[str]()

    async def __call__(self, side: PeerStreams) -> int | None:
        return await _Noting(side, self.prompts).live()


class LimitedOnce(Counting):
    """A peer whose first prompt is refused by a usage limit of an hour."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = [
            line(
                type="rate_limit_event",
                rate_limit_info={
                    "status": "rejected",
                    "resetsAt": round(time.time() + 3600),
                    "rateLimitType": "five_hour",
                },
            )
        ]

    async def __call__(self, side: PeerStreams) -> int | None:
        return await _Refusing(side, self.prompts, self.refusals).live()


class _Noting(Speaker):
    def __init__(self, side: PeerStreams, prompts: Counter[str]) -> None:
        super().__init__(side)
        self._prompts = prompts

    async def _prompt(self, text: str) -> int | None:
        self._prompts[text] += 1
        return await super()._prompt(text)


class _Refusing(_Noting):
    def __init__(self, side: PeerStreams, prompts: Counter[str], refusals: list[bytes]) -> None:
        super().__init__(side, prompts)
        self._refusals = refusals

    async def _prompt(self, text: str) -> int | None:
        if not self._refusals:
            return await super()._prompt(text)
        self._prompts[text] += 1
        await self._side.send_all(INIT + self._refusals.pop())
        await self._end(subtype="success", is_error=True, terminal_reason="api_error", result="Limit")
        return None


class DyingStore:
    """`inner`, of a host that dies `when` the call of the number `at` was done, or just before it is: nothing that is asked of
    it from then on is done. `died` is set then. What still asks gets an error once `release` is called, so that the
    rest of the host can end."""

    def __init__(self, inner: StoreBackend, at: int, when: Literal["before", "after"]) -> None:
        self._inner = inner
        self._left = at
        self._when = when
        self._released = trio.Event()
        self.died = trio.Event()

    @property
    def released(self) -> bool:
        return self._released.is_set()

    def release(self) -> None:
        self._released.set()

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        if self.died.is_set():
            await self._refuse()
        self._left -= 1
        if self._left == 0:
            if self._when == "after":
                await work()
            self.died.set()
            await self._refuse()
        return await work()

    async def _refuse(self) -> NoReturn:
        await self._released.wait()
        raise StoreError("store", "is gone with its host")

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def accept(self, request: StoredRequest) -> StoredRequest:
        return await self._call(lambda: self._inner.accept(request))

    async def send(self, id: str, mark: SendMark) -> None:
        await self._call(lambda: self._inner.send(id, mark))

    async def end(self, id: str, end: StoredEnd) -> None:
        await self._call(lambda: self._inner.end(id, end))

    async def requests(
        self, *, agent: str | None = None, key: str | None = None, open_only: bool = False
    ) -> Sequence[StoredRequest]:
        return await self._inner.requests(agent=agent, key=key, open_only=open_only)

    async def put(self, agent: str, name: str, value: str | None) -> None:
        await self._call(lambda: self._inner.put(agent, name, value))

    async def facts(self) -> Mapping[str, Mapping[str, str]]:
        return await self._inner.facts()

    async def prune(self, before: float) -> int:
        return await self._call(lambda: self._inner.prune(before))
