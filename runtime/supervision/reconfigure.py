"""Reconfiguration: the differences when a running supervisor gets other flags and other specs.

Guarantees: everything is checked before anything changes. The children of the new list come first, in its order, each
in its old place's state; those it does not name keep their specs and follow, in their old order; new ones are down.

What a supervisor does about a child (`restart`, `shutdown`, `significant`) holds from the next event on, what a child
is started with from its next start. A restart that was due for a child that has become temporary is not due any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from proctor.runtime.spec import ChildSpec, Flags, check_childspecs
from proctor.runtime.supervision.child_table import Slot


def changed_flags(
    flags: Flags, changes: Mapping[str, Any], specs: Sequence[ChildSpec], held: Mapping[str, Slot]
) -> Flags:
    """`flags` with `changes`, checked with all specs that will be held. Raises `InvalidSpec`."""
    changed = attrs.evolve(flags, **changes)
    check_childspecs(specs, changed.auto_shutdown)
    named = {spec.id for spec in specs}
    check_childspecs([slot.spec for id, slot in held.items() if id not in named], changed.auto_shutdown)
    return changed


def changed_slots(held: Mapping[str, Slot], specs: Sequence[ChildSpec]) -> dict[str, Slot]:
    """The slots in their new order; those of `specs` that are held have their new spec."""
    slots = {spec.id: held.get(spec.id) or Slot(spec) for spec in specs}
    for spec in specs:
        slots[spec.id].change(spec)
    return slots | {id: slot for id, slot in held.items() if id not in slots}
