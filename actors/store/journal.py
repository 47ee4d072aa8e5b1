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

    async def sending(self, on_crash: OnCrash, session_id: str | None, recording: str | None) -> None:
        """Mark it as sent: before a byte of its prompt is written. Raises `StoreError`."""
        mark = SendMark(at=time.time(), on_crash=on_crash, session_id=session_id, recording=recording)
        await self.store.send(self.id, mark)
        self.mark = mark

    async def started(self, session_id: str | None) -> None:
        """Mark that its turn has begun: the conversation has the prompt, so it can be continued. Raises `StoreError`."""
        if self.mark is not None and not self.mark.started:
            self.mark = msgspec.structs.replace(self.mark, started=True, session_id=session_id)
            await self.store.send(self.id, self.mark)
