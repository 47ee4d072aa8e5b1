"""The notifications of a fleet that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from proctor.actors.fleet.fleet import Fleet
from proctor.actors.specs import Supervisor
from proctor.actors.store.sqlite import Store
from proctor.cli.fleet_run import store_path


async def notify(
    fleet: Fleet,
    sup: Supervisor,
    names: Mapping[str, str],
    absent: Mapping[str, str],
    is_done: Callable[[], bool],
    file: Path,
) -> None:
    """Send what its `file` asks for, until the tree has ended. `names` are those of its agents by path; `absent` has why one is left out, by name."""
    if fleet.notify is None:
        return
    # few fleets have one, and its clients take as long to load as a command takes to start
    from proctor.actors.operations.notifications import Notifier

    # apart from the requests: it is open beyond the tree, until the last one is sent
    store = Store(store_path(fleet.name, file).with_suffix(".notifications.db"))
    await Notifier(fleet.name, fleet.notify, store).run(sup, names, absent, is_done)
