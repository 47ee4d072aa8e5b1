"""The notifications of a fleet that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proctor.actors.fleet.fleet import Fleet
from proctor.actors.specs import Supervisor


async def notify(
    fleet: Fleet,
    sup: Supervisor,
    names: Mapping[str, str],
    absent: Mapping[str, str],
    is_done: Callable[[], bool],
) -> None:
    """Send what its file asks for, until the tree has ended. `names` are those of its agents by path; `absent` has why one is left out, by name."""
    if fleet.notify is None:
        return
    # few fleets have one, and its clients take as long to load as a command takes to start
    from proctor.actors.operations.notifications import Notifier

    await Notifier(fleet.name, fleet.notify).run(sup, names, absent, is_done)
