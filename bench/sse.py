"""500 clients follow one agent's events over HTTP, and 50 of them never read: what do the others notice?

The server is a process of its own: one agent, whose log gets `EVENTS` texts of about 300 bytes, ten a second, each with
the time in it. The clients are tasks of this process. The delay is from that time to the frame in the client, so it
holds the clients' own work, too. Clients that never read lose their connection after `STALL` seconds.

    python -m bench.sse [--clients 500] [--deaf 50] [--events 100]
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from proctor.actors.gateways.http import AuthMiddleware, application, open_gateway
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve
from proctor.protocols.vocabulary import Text
from tests.actors.spoken import spoken_plan

EVENTS = 100
PACE = 0.1
STALL = 1.0
PAD = "x" * 200
REQUEST = b"GET /agents/a/events HTTP/1.1\r\nhost: localhost\r\n\r\n"


@attrs.define
class Figures:
    """Of one run: seconds each event took to each client that reads, and MB of the server before and after."""

    wanted: int
    complete: trio.Event = attrs.field(factory=trio.Event)
    delays: list[float] = attrs.field(factory=list[float])
    before: float = 0.0
    after: float = 0.0
    cpu: float = 0.0

    def take(self, now: float, said: Sequence[bytes]) -> None:
        """The times in what a client got now."""
        self.delays += [now - float(at) for at in said]
        if len(self.delays) >= self.wanted:
            self.complete.set()


# -- the server


async def served(count: int) -> None:
    """Says its port, appends once a line has come on stdin, and says what it cost."""
    plan = spoken_plan()
    async with open_supervisor([agent_spec("agent", plan, {})]) as sup:
        agent = sup.agent("agent")
        async with (
            agent.events() as cursor,
            open_gateway({"a": agent}) as gateway,
            trio.open_nursery() as nursery,
        ):
            with bound(Endpoint()) as opened:
                app, shutdown = AuthMiddleware(application(gateway), endpoint_of(opened)), trio.Event()
                await nursery.start(partial(serve, app, opened, shutdown=shutdown, write_timeout=STALL))
                print(endpoint_of(opened).port, flush=True)
                await trio.to_thread.run_sync(sys.stdin.readline)
                print(resident(), flush=True)
                began = time.process_time()
                for number in range(count):
                    cursor.log.append([Text(number, None, f"at {time.time()} {PAD}")])
                    await trio.sleep(PACE)
                await trio.to_thread.run_sync(sys.stdin.readline)
                print(resident(), time.process_time() - began, flush=True)
                nursery.cancel_scope.cancel()


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# -- the clients


async def clients(port: int, count: int, deaf: int, server: subprocess.Popen[str], figures: Figures) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    async with trio.open_nursery() as reading:
        for number in range(count):
            silent = number % (count // deaf) == 0 if deaf else False
            await reading.start(partial(_client, port, figures, silent=silent))
        server.stdin.write("go\n")
        server.stdin.flush()
        figures.before = float(await trio.to_thread.run_sync(server.stdout.readline))
        await figures.complete.wait()
        server.stdin.write("enough\n")
        server.stdin.flush()
        said = (await trio.to_thread.run_sync(server.stdout.readline)).split()
        figures.after, figures.cpu = float(said[0]), float(said[1])
        reading.cancel_scope.cancel()


async def _client(
    port: int,
    figures: Figures,
    *,
    silent: bool,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.socket.socket() as connection:
        if silent:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await connection.connect(("127.0.0.1", port))
        await connection.send(REQUEST)
        await connection.recv(1024)
        task_status.started()
        if silent:
            await trio.sleep_forever()
        rest = b""
        while chunk := await connection.recv(65536):
            whole, _, rest = (rest + chunk).rpartition(b"\n\n")
            figures.take(time.time(), re.findall(rb'"at ([0-9.]+) ', whole))


def run(count: int, deaf: int, events: int = EVENTS) -> Figures:
    command = [sys.executable, "-m", "bench.sse", "--serve", f"--events={events}"]
    figures = Figures((count - deaf) * events)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            trio.run(clients, int(server.stdout.readline()), count, deaf, server, figures)
        finally:
            server.kill()
    return figures


HEADINGS = (
    "clients",
    "p50 ms",
    "p99 ms",
    "longest ms",
    "server MB",
    "MB after",
    "CPU s",
    "CPU µs per frame and client",
)


def table(rows: Sequence[tuple[str, Figures]]) -> str:
    """Markdown, one row per run."""
    cells = [HEADINGS, ("---", *["--:"] * 7), *((name, *_cells(figures)) for name, figures in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cells(figures: Figures) -> tuple[str, ...]:
    ordered = sorted(figures.delays)
    parts = (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])
    delays = (f"{part * 1000:.0f}" for part in parts)
    return (
        *delays,
        f"{figures.before:.1f}",
        f"{figures.after:.1f}",
        f"{figures.cpu:.2f}",
        f"{figures.cpu / figures.wanted * 1e6:.0f}",
    )


def rows(count: int, deaf: int, events: int = EVENTS) -> list[tuple[str, Figures]]:
    """Those that read by themselves, and with those that do not."""
    reading = count - deaf
    return [
        (f"{reading} that read", run(reading, 0, events)),
        (f"and {deaf} that never do", run(count, deaf, events)),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=500)
    options.add_argument("--deaf", type=int, default=50)
    options.add_argument("--events", type=int, default=EVENTS)
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve:
        trio.run(served, chosen.events)
        return
    print(table(rows(chosen.clients, chosen.deaf, chosen.events)))


if __name__ == "__main__":
    main()
