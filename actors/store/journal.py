"""The journal of one request: what its agent reports of it to the store."""

from __future__ import annotations

import time

import attrs
import msgspec

from proctor.actors.plan.options import OnCrash
from proctor.actors.store.backend import StoreBackend
from proctor.actors.store.records import SendMark


@attrs.define(eq=False)
class Journal:
    """Of the request `id` in `store`. `mark` is there once the store knows that it may have been sent."""

    store: StoreBackend
    id: str
    mark: SendMark | None = None

    @property
    def needs_mark(self) -> bool:
        """Whether the request has to be marked before its prompt is written: the first time, and after a usage limit."""
        return self.mark is None or self.mark.parked

    async def sending(self, on_crash: OnCrash, session_id: str | None, recording: str | None) -> None:
        """Mark it as sent: before a byte of its prompt is written. Raises `StoreError`."""
        started = self.mark is not None and self.mark.started
        mark = SendMark(
            at=time.time(), on_crash=on_crash, session_id=session_id, recording=recording, started=started
        )
        await self.store.send(self.id, mark)
        self.mark = mark

    async def started(self, session_id: str | None) -> None:
        """Mark that its turn has begun: the conversation has the prompt, so it can be continued. Raises `StoreError`."""
        if self.mark is not None and not self.mark.started:
            self.mark = msgspec.structs.replace(self.mark, started=True, session_id=session_id)
            await self.store.send(self.id, self.mark)

    async def parked(self) -> None:
        """Mark that a usage limit refused its attempt: its prompt is sent again, by this host or the next. Raises `StoreError`."""
        if self.mark is not None:
            self.mark = msgspec.structs.replace(self.mark, parked=True)
            await self.store.send(self.id, self.mark)
