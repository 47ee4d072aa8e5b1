"""The cost of those who look: a fleet whose agents all stream text, with nobody, one and two who follow its changes.

    python -m bench.views [--agents 500] [--rate 2] [--seconds 4] [--rounds 5]

The agents' command lines are in memory, in this process. The number of viewers changes from turn to turn, and what a viewer costs
is what the process takes more than without one: looks, records and encoded frames, but not their way through a socket.
A view shows an agent at most once a second, so its cost does not grow with the rate.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial

import trio

from bench.contest import options
from proctor.actors.gateways.http.fleet_view import FleetView, write_changes
from proctor.actors.gateways.http.lifecycle import Lifecycle
from proctor.actors.serving.in_flight import CancelSignal
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.actors.transport.memory import PeerStreams
from tests.actors.spoken import Speaker, spoken_plan
from tests.protocols.lines import INIT

AGENTS, RATE, SECONDS = 500, 2, 4
VIEWERS = (0, 1, 2)
_PING = 15.0
_SETTLE = 1.0
"""Seconds before the clock is read: a new viewer has all agents due at once."""


class Streaming(Speaker):
    """Streams pieces of text from its first prompt on, `rate` of them a second."""

    def __init__(self, side: PeerStreams, rate: int, delay: float) -> None:
        super().__init__(side)
        self._rate, self._delay = rate, delay

    async def _prompt(self, text: str) -> int | None:
        await self._side.send_all(INIT)
        await trio.sleep(self._delay)  # else all agents would speak in one pass of the loop
        number = 0
        while True:
            number += 1
            delta = {"type": "text_delta", "text": f"word {number} "}
            event = {"type": "content_block_delta", "index": 0, "delta": delta}
            frame = {"type": "stream_event", "event": event, "session_id": "s", "uuid": "u"}
            await self._side.send_all(json.dumps(frame).encode() + b"\n")
            await trio.sleep(1 / self._rate)


async def measure(agents: int, rate: int, seconds: float, rounds: int) -> dict[int, list[float]]:
    """The share of a core that this process takes, in percent, of each round, by the number of viewers."""

    async def peer(side: PeerStreams, *, delay: float) -> int | None:
        return await Streaming(side, rate, delay).live()

    specs = [
        agent_spec(
            f"a{n}",
            # a place of its own: all of them have one conversation's id
            spoken_plan(partial(peer, delay=n / agents / rate), home="user", env={"HOME": f"/{n}"}),
            {"name": f"a{n}"},
        )
        for n in range(agents)
    ]
    taken = {count: list[float]() for count in VIEWERS}
    async with open_supervisor(specs, stop_order="parallel") as sup:
        handles = {f"a{n}": sup.agent(f"a{n}") for n in range(agents)}
        for agent in handles.values():
            await agent.queue("go")
        with FleetView(handles, Lifecycle(sup, {name: name for name in handles}), {}) as view:
            for _ in range(rounds):
                for count in VIEWERS:
                    taken[count].append(await _share(view, count, seconds))
    return taken


async def _share(view: FleetView, viewers: int, seconds: float) -> float:
    async def discard(data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(viewers):
            nursery.start_soon(write_changes, view, None, CancelSignal(), _PING, discard)
        await trio.sleep(_SETTLE)
        began = time.process_time()
        await trio.sleep(seconds)
        share = (time.process_time() - began) / seconds * 100
        nursery.cancel_scope.cancel()
    return share


def table(taken: Mapping[int, Sequence[float]]) -> str:
    """Markdown, a row for each number of viewers."""
    alone = statistics.median(taken[0])
    lines = [
        "| viewers | % of a core, the host | range | more than with none | for each |",
        "|---|--:|--:|--:|--:|",
    ]
    for count, shares in taken.items():
        median = statistics.median(shares)
        more = ("", "") if count == 0 else (f"{median - alone:.1f}", f"{(median - alone) / count:.1f}")
        span = f"{min(shares):.1f} to {max(shares):.1f}"
        lines.append(f"| {count} | {median:.1f} | {span} | {more[0]} | {more[1]} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    chosen = options("The cost of those who look at a fleet", agents=AGENTS, rate=RATE, seconds=SECONDS)
    print(table(trio.run(measure, chosen.agents, chosen.rate, chosen.seconds, chosen.rounds)))


if __name__ == "__main__":
    main()
