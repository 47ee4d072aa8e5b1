"""Links: two that end together, or learn of each other's end.

Guarantees: a link goes both ways, and two have one link however often it is made. The end of one, notified once, after
what it had sent: an abnormal reason or a `Shutdown` ends the other with the same reason, `Normal` does
nothing; one that traps exits gets `ExitSignal` by `handle_info` instead, whatever the reason. A kill cannot be
trapped by the one killed, and its links see `Killed`. A link to no notification exists the other of `NoProc`.

One that is ended by a link runs its `terminate`, and its supervisor sees an exit like any other. A supervisor traps
exits: one that it did not start is a dead letter there.

Not here: what the end of a link does to an actor (`child`).
"""

from __future__ import annotations

from proctor.runtime.exits import NoProc
from proctor.runtime.messaging.endpoint import Endpoint
from proctor.runtime.messaging.notices import ExitSignal
from proctor.runtime.messaging.refs import Address


def link(one: Address, other: Address) -> None:
    """Link the incarnations that stand there now. One that is gone, or never was, ends the other with `NoProc`."""
    a, b = _alive(one), _alive(other)
    if a is not None and b is not None:
        _join(a, b)
    elif a is not None:
        a.take_exit(ExitSignal(other, NoProc(other)))
    elif b is not None:
        b.take_exit(ExitSignal(one, NoProc(one)))


def unlink(one: Address, other: Address) -> None:
    """Take back a link; nothing happens where there is none. A signal that is under way already is not recalled."""
    a, b = one.find(), other.find()
    if a is not None and b is not None:
        a.unlink(b)
        b.unlink(a)


def _alive(address: Address) -> Endpoint | None:
    endpoint = address.find()
    return None if endpoint is None or endpoint.exit is not None else endpoint


def _join(a: Endpoint, b: Endpoint) -> None:
    if a is b:  # its end would come back to itself
        return
    for one, other in ((a, b), (b, a)):
        if one.links is None:
            one.links = {}
        one.links[other] = None
