"""The peers that are not of this project's own environment: which of them enter a work, and which are not there.

Every peer has its row. One whose package or program is missing is never imported nor started, and its row says so; so
does the row of one that would need a process for each of a thousand actors. A slow peer does one in so many of the
operations, and its watch is scaled to all: what it costs to be started is in neither. A peer that works in processes of
its own is compared by wall time.

Each works in a module of its own, imported when it first runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import Any, Literal

import attrs

from bench.contest import Contender, Measure, Stopwatch

MISSING = "not installed"
TOO_MANY = "a process each"
CROWD = 64
"""As many actors as a peer is given that needs a process for each."""

Exchange = Literal["call", "cast"]
Needs = Literal["package", "program"]
FIND: Mapping[Needs, Callable[[str], object]] = {"package": find_spec, "program": which}


@attrs.frozen
class Peer:
    """`function` of `bench.peers.<module>` does a work, given `arguments` before those of the work itself.

    `requires` is the package or the program without which it is not there; `one_in` as in the module's theory; `apart`:
    it works in other processes; `each`: in one for every actor.
    """

    name: str
    module: str
    function: str
    requires: str
    arguments: tuple[object, ...] = ()
    needs: Needs = "package"
    one_in: int = 1
    apart: bool = False
    each: bool = False

    def absent(self, actors: int = 1) -> str:
        """Why it cannot run with so many at once; empty when it can."""
        if FIND[self.needs](self.requires) is None:
            return MISSING
        return TOO_MANY if self.each and actors > CROWD else ""

    def enter(self, actors: int, *arguments: object) -> Contender:
        """As a contender, who is given `arguments`, the number of actors, and the size of the work."""
        run = partial(self._run, (*self.arguments, *arguments, actors))
        by: Measure | None = "wall" if self.apart else None
        return Contender("peer", self.name, in_part(run, self.one_in, actors), by, self.absent(actors))

    def _run(self, arguments: tuple[object, ...], size: int) -> Stopwatch:
        watch: Stopwatch = self.load()(*arguments, size)
        return watch

    def load(self) -> Callable[..., Any]:
        """The function, its module imported."""
        found: Callable[..., Any] = getattr(import_module(f"bench.peers.{self.module}"), self.function)
        return found


def in_part(run: Callable[[int], Stopwatch], one_in: int, actors: int) -> Callable[[int], Stopwatch]:
    """Runs one in so many of the operations, rounded so that each actor has as many, and tells the time of all."""

    def scaled(size: int) -> Stopwatch:
        part = max(1, size // one_in // actors) * actors
        watch = run(part)
        watch.wall, watch.cpu = watch.wall * size / part, watch.cpu * size / part
        return watch

    return scaled


ERLANG = partial(Peer, module="erlang", requires="escript", needs="program", apart=True)
KEEPER = partial(Peer, module="keepers", function="kept", needs="program", apart=True)

MAILBOXES = (
    Peer("asyncio, queue, uvloop", "uvloop", "exchange", "uvloop"),
    Peer("anyio on asyncio", "anyio", "exchange", "anyio", ("asyncio",)),
    Peer("anyio on trio", "anyio", "exchange", "anyio", ("trio",)),
    Peer("pykka, threads", "pykka", "exchange", "pykka", one_in=10),
    Peer("thespian, simpleSystemBase", "thespian", "exchange", "thespian", ("simpleSystemBase",), one_in=2),
    Peer(
        *("thespian, multiprocTCPBase", "thespian", "exchange", "thespian", ("multiprocTCPBase",)),
        one_in=100,
        apart=True,
        each=True,
    ),
    Peer("tractor", "tractor", "exchange", "tractor", one_in=100, apart=True, each=True),
    Peer("Ray", "ray", "exchange", "ray", one_in=100, apart=True, each=True),
    ERLANG("Erlang gen_server", function="exchange"),
)
SPAWNERS = (
    Peer("asyncio, uvloop", "uvloop", "start", "uvloop"),
    ERLANG("Erlang port", function="start"),
)
KEEPERS = (
    ERLANG("Erlang supervisor + port", module="keepers", function="kept", arguments=("erlang",)),
    KEEPER("runit", requires="runsv", arguments=("runit",), one_in=16),
    KEEPER("s6", requires="s6-supervise", arguments=("s6",), one_in=16),
    KEEPER("supervisord", requires="supervisord", arguments=("supervisord",), one_in=32),
    KEEPER("circus", requires="circusd", arguments=("circus",), one_in=32),
)
IDLERS = (
    Peer("a pykka actor, a thread", "pykka", "crowd", "pykka"),
    Peer("a thespian actor, simpleSystemBase", "thespian", "crowd", "thespian"),
)
STREAMERS = (Peer("claude-agent-sdk, query()", "claude_sdk", "stream", "claude_agent_sdk", one_in=10),)
FLEETS = (ERLANG("Erlang ports, self-reported", function="hear"),)
SERVER = ERLANG("an Erlang gen_server, self-reported", function="idle")

Many = Callable[[int], AbstractAsyncContextManager[None]]


def mailboxes(exchange: Exchange, actors: int) -> tuple[Contender, ...]:
    """Those who call or cast."""
    return tuple(peer.enter(actors, exchange) for peer in MAILBOXES)


def streamers(per_write: int) -> tuple[Contender, ...]:
    """Those who read what a command line says."""
    return tuple(peer.enter(1, per_write) for peer in STREAMERS)


def spawners(at_once: int) -> tuple[Contender, ...]:
    """Those who start programs and wait for their ends."""
    return tuple(peer.enter(at_once) for peer in SPAWNERS)


def keepers(at_once: int) -> tuple[Contender, ...]:
    """Those who start a program again when it ends."""
    return tuple(peer.enter(at_once) for peer in KEEPERS)


def crowds() -> dict[str, Many]:
    """Those of our interpreter who can be idle, and are there."""
    return {peer.name: partial(_crowd, peer) for peer in IDLERS if not peer.absent()}


def _crowd(peer: Peer, count: int) -> AbstractAsyncContextManager[None]:
    crowd: Many = peer.load()
    return crowd(count)


def reports(count: int) -> dict[str, list[float]]:
    """What others tell of themselves, in the order of `bench.idle`; empty for those who are not there."""
    absent = {peer.name: list[float]() for peer in IDLERS if peer.absent()}
    if SERVER.absent():
        return {**absent, SERVER.name: []}
    idle: Callable[[int], list[float]] = SERVER.load()
    return {**absent, SERVER.name: idle(count)}
