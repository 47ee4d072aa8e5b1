"""Says in one line what to use in place of Trio's own error, where something is awaited in an asyncio program."""

from __future__ import annotations

from trio.lowlevel import in_trio_run

from proctor.runtime.errors import NotInTrio


def check_in_trio(what: str) -> None:
    """Raise `NotInTrio` where no Trio loop runs. It costs a tenth of a microsecond: for what begins something, not for each message."""
    if not in_trio_run():
        raise NotInTrio(what)
