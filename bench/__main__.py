"""Every table, each of ours beside its limit and its peers.

    python -m bench [--rounds 3] [--lines 50000] [--operations 10000] [--actors 1000] [--programs 256] [--kills 32]
        [--at-once 500] [--children 100] [--seconds 5] [--turns 20] [--starts 5]
        [--clients 200] [--requests 300] [--megabytes 40] [--open 10000] [--notices 50000]

The sizes are less than those of the scripts by themselves, so that all takes a few minutes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import trio

from bench import (
    agents,
    cold,
    faces,
    fleet,
    growth,
    idle,
    longline,
    mailbox,
    ndjson,
    overhead,
    restart,
    service,
    spans,
    spawn,
    sse,
    store,
    views,
    warm,
)
from bench.contest import hold, options, table

GUARDED = 8
"""Guarded starts, of which each takes an interpreter's start."""


def main() -> None:
    """Print the tables, each as soon as it is known."""
    chosen = options(
        "Everything beside its limit and its peers",
        rounds=3,
        lines=50_000,
        operations=10_000,
        actors=mailbox.ACTORS,
        programs=spawn.PROGRAMS,
        kills=32,
        at_once=restart.AT_ONCE,
        children=100,
        seconds=5,
        turns=20,
        starts=5,
        clients=200,
        requests=store.REQUESTS,
        megabytes=longline.MEGABYTES,
        open=mailbox.OPEN,
        notices=mailbox.NOTICES,
    )
    gc.collect()
    gc.freeze()  # all scripts are imported here, and none is to wait for a look through the others
    rounds = int(chosen.rounds)
    tables: dict[str, Callable[[], str]] = {
        "NDJSON": lambda: table(hold(ndjson.work(chosen.lines), rounds)),
        "Long lines": lambda: longline.table(rounds, chosen.megabytes),
        "Fleet": lambda: fleet.table(fleet.rows(fleet.Fleet(chosen.children, fleet.RATE, chosen.seconds), 1)),
        "Overhead": lambda: overhead.table(overhead.rows(chosen.turns, chosen.starts, ("scripted",))),
        "Warm": lambda: warm.table(warm.rows(chosen.starts)),
        "Commands": lambda: cold.table(cold.rows(rounds)),
        "Mailbox": lambda: table(
            mailbox.results(chosen.operations, chosen.actors, rounds, chosen.open, chosen.notices)
        ),
        "Starts": lambda: table(spawn.results(chosen.programs, GUARDED, spawn.AT_ONCE, rounds)),
        "Agents": lambda: agents.table(agents.rows(min(chosen.children, agents.AGENTS), 1)),
        "Restarts": lambda: table(restart.results(chosen.kills, chosen.at_once, rounds)),
        "Events over HTTP": lambda: sse.table(
            sse.rows(chosen.clients, max(1, chosen.clients // 10), int(chosen.seconds / sse.PACE))
        ),
        "Views of a fleet": lambda: views.table(
            trio.run(views.measure, chosen.children, views.RATE, chosen.seconds, rounds)
        ),
        "Idle": lambda: idle.table(idle.rows(chosen.actors, rounds)),
        "Kept requests": lambda: table(store.results(chosen.requests, store.CALLERS, rounds)),
        "Spans": lambda: spans.table(spans.rows(200 * chosen.turns // 2, rounds)),
        "Faces": lambda: faces.table(faces.rows(min(chosen.operations, faces.CALLS), faces.EVENTS, rounds)),
        "Service": lambda: service.table(service.rows(service.RATE, chosen.seconds, 2 * chosen.seconds)),
        "Growth": lambda: growth.table(
            growth.rows(
                {
                    "agents": chosen.children,
                    "actors": chosen.actors,
                    "lines": chosen.operations,
                    "hosts": chosen.programs,
                    "runs": chosen.actors,
                },
                1,
            )
        ),
    }
    for name, printed in tables.items():
        print(f"## {name}\n\n{printed()}\n", flush=True)


if __name__ == "__main__":
    main()
