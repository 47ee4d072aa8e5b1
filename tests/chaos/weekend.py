"""The weekend of a fleet, in some minutes: its host is killed at random moments, and every request is accounted for.

    python -m tests.chaos.weekend [--agents 50] [--real 10] [--kills 20] [--seed 1]

Hosts are `proctor up` on one fleet file, one after the other, each killed by SIGKILL. Orders are queued over the control
socket, each with a key of its own, and sent again when no receipt has come. Meanwhile agents ask questions that are
answered in the end, one reaches a usage limit, the file changes and is read again, and the disk is full for a while. Then:

- every order has one end, the same for everybody who asks;
- no prompt was written to an agent twice;
- the bill is the sum of what the agents have reported;
- no process and no socket is left.

The disk is a file system of its own, which needs user namespaces: without them it does not fill up, and the report says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs
import trio

from proctor.actors.client.connection import Connection
from proctor.actors.client.fleet import RemoteFleet
from proctor.actors.client.sockets import Host
from proctor.actors.errors import AgentError
from proctor.runtime.exits import NoProc
from proctor.runtime.processes import procfs
from tests.clis.install import CLIS
from tests.fakes.messages_api import open_messages_api
from tests.fakes.model_api import open_completions_api
from tests.fakes.responses_api import open_responses_api
from tests.fakes.steps import Repeat, Text
from tests.real.agents import codex_home, codex_options, opencode_home
from tests.real.homes import ClaudeHome, make_home

ROOT = Path(__file__).parents[2]
COST = 0.01
"""Dollars of each turn of a scripted agent."""
QUESTIONS = 5
DISK = "192m"
PATIENCE = 300.0
WORKS = f'{{"sleep": 0.2}}\n{{"reply": "did {{prompt}}", "cost": {COST}}}\n'
ASKS = '{"tool": "Bash", "input": {"command": "ls"}, "ask": true, "result": "x"}\n' + WORKS
IS_LIMITED = '{"turn": "first"}\n{"end": "limit", "resets": 4}\n{"turn": "then"}\n' + WORKS


REFUSALS = (AgentError, NoProc)
"""What a request ends in that the host has not taken, or whose end is no answer."""


@attrs.frozen(kw_only=True)
class Choice:
    """What a weekend has: `agents` in all, `real` command lines among them, `kills` of the host."""

    agents: int
    real: int
    kills: int
    seed: int
    is_mounted: bool = False


@attrs.define
class Order:
    """A request to an agent under a key of its own."""

    agent: str
    key: str
    is_accepted: bool = False

    @property
    def prompt(self) -> str:
        """What is asked."""
        return f"Do <{self.key}>."


@attrs.define
class Report:
    """What has happened, and what should not have."""

    lives: int = 0
    answered: int = 0
    unknown: int = 0
    bill: float = 0.0
    deeds: Counter[str] = attrs.field(factory=Counter[str])
    faults: list[str] = attrs.field(factory=list[str])

    def lines(self) -> Iterable[str]:
        """It, for a person."""
        yield f"{self.lives} hosts, {self.answered} orders answered, {self.unknown} may have been carried out, bill ${self.bill:.2f}"
        yield from (f"  {deed} {count}" for deed, count in self.deeds.most_common())
        yield from (f"FAULT {fault}" for fault in self.faults or ["none"])


@attrs.frozen
class Life:
    """One `proctor up`, and a client of it."""

    process: trio.Process
    fleet: RemoteFleet


class Weekend:
    """One weekend in `folder`, whose `disk` holds everything that proctor writes."""

    def __init__(self, folder: Path, random: Random, agents: int, kills: int) -> None:
        self.report = Report()
        self._folder, self._disk = folder, folder / "disk"
        self._random, self._kills = random, kills
        self._orders: list[Order] = []
        self._scripted = [f"worker-{number}" for number in range(agents)]
        self._askers = [f"asker-{number}" for number in range(QUESTIONS)]
        self._real: list[str] = []
        self._tables: dict[str, str] = {}
        self.can_fill = False
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(self._disk),
            "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "PYTHONPATH": str(ROOT / "src"),
        }

    # -- the fleet

    def add_scripted(self) -> None:
        """Put the scripted agents into the fleet file."""
        for name, script in (("works", WORKS), ("asks", ASKS), ("limited", IS_LIMITED)):
            (self._folder / f"{name}.ndjson").write_text(script)
        for number, name in enumerate(self._scripted):
            self._add(name, "works", on_crash=("resume", "fail")[number % 2])
        for name in self._askers:
            self._add(name, "asks", on_crash="resume", permission="ask", approval_deadline="1h")
        self._add("limited", "limited", on_crash="resume")
        self._add("leaver", "works")

    def add_real(self, kind: str, options: Mapping[str, Any]) -> None:
        """Put a real command line into the fleet file."""
        name = f"{kind}-{len(self._real)}"
        self._real.append(name)
        self._table(name, kind, on_crash="resume", **options)

    def _add(self, name: str, script: str, **options: Any) -> None:
        self._table(name, "scripted", script=f"{script}.ndjson", **options)

    def _table(self, name: str, kind: str, **options: Any) -> None:
        values = {"kind": kind, "name": name, **options}
        self._tables[name] = "\n".join(["[[agents]]", *(f"{k} = {_toml(v)}" for k, v in values.items())])

    def _write(self) -> Path:
        file = self._folder / "weekend.toml"
        file.write_text("\n\n".join(["intensity = 1000", *self._tables.values()]) + "\n")
        return file

    # -- its days

    async def run(self) -> Report:
        """All of it."""
        for agent in self._askers:
            self._order(agent)
        self._order("limited")
        deeds = {self._kills // 3: self._fill_disk, self._kills // 2: self._reload}
        for life in range(self._kills):
            async with self._host() as host, trio.open_nursery() as nursery:
                nursery.start_soon(self._shop, host)
                if life in deeds:
                    await self._until_up(host)
                    await deeds[life](host)
                else:
                    await trio.sleep(self._random.uniform(0.3, 8))
                nursery.cancel_scope.cancel()
        async with self._host() as host:
            await self._until_up(host)
            await self._settle(host)
            host.process.terminate()
            with trio.fail_after(60):
                await host.process.wait()
        await self._check_bill()
        self._check_rest()
        return self.report

    @asynccontextmanager
    async def _host(self) -> AsyncGenerator[Life]:
        """A host, killed at the end of the block."""
        self.report.lives += 1
        with (self._folder / "output.txt").open("ab") as output:
            process = await trio.lowlevel.open_process(
                (sys.executable, "-m", "proctor", "up", str(self._write())),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=self._folder,
            )
        try:
            path = str(self._folder / "runtime" / "proctor" / "weekend.sock")
            yield Life(process, RemoteFleet(Connection(Host("weekend", path, process.pid), PATIENCE)))
        finally:
            with trio.CancelScope(shield=True):  # the next host needs its store
                process.kill()
                await process.wait()

    async def _until_up(self, host: Life) -> None:
        with trio.fail_after(PATIENCE):
            while not await self._is_up(host.fleet):
                assert host.process.poll() is None, "the host has ended"
                await trio.sleep(0.1)

    async def _is_up(self, fleet: RemoteFleet) -> bool:
        with suppress(*REFUSALS):
            return (await fleet.agents()).keys() == self._tables.keys()
        return False

    def _order(self, agent: str) -> Order:
        order = Order(agent, f"order-{len(self._orders)}")
        self._orders.append(order)
        return order

    async def _shop(self, host: Life) -> None:
        """Give orders, and those again that have no receipt."""
        while True:
            for order in [order for order in self._orders if not order.is_accepted]:
                await self._submit(host, order)
            await self._submit(host, self._order(self._random.choice([*self._scripted, *self._real])))
            await trio.sleep(self._random.uniform(0.0, 0.2))

    async def _submit(self, host: Life, order: Order) -> None:
        try:
            await host.fleet.agent(order.agent).queue(order.prompt, key=order.key)
        except REFUSALS as error:
            self.report.deeds[f"no receipt ({type(error).__name__})"] += 1
            await trio.sleep(0.2)
        else:
            order.is_accepted = True

    async def _fill_disk(self, host: Life) -> None:
        if not self.can_fill:
            self.report.deeds["disk not filled: no user namespaces"] += 1
            return
        ballast = self._disk / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
        await trio.sleep(3)
        self.report.deeds["disk full"] += 1
        ballast.unlink()
        await trio.sleep(1)

    async def _reload(self, host: Life) -> None:
        del self._tables["leaver"]
        self._add("newcomer", "works", on_crash="resume")
        self._scripted.append("newcomer")
        self._write()
        found = await host.fleet.reload()
        self.report.deeds["reload"] += 1
        if (found["added"], found["removed"]) != (["newcomer"], ["leaver"]):
            self.report.faults.append(f"a reload found {found}")

    # -- its end

    async def _settle(self, host: Life) -> None:
        """Wait for the end of every order, and ask for it a second time."""
        for agent in (*self._scripted, *self._askers, "limited"):
            self._order(agent)  # its cost includes that of a turn whose host died in the midst of it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_questions, host)
            async with trio.open_nursery() as orders:
                for order in self._orders:
                    orders.start_soon(self._ask, host, order)
            nursery.cancel_scope.cancel()

    async def _answer_questions(self, host: Life) -> None:
        while True:
            for approval in await host.fleet.approvals():
                with suppress(*REFUSALS):  # it was settled meanwhile
                    await approval.allow()
                    self.report.deeds["question answered"] += 1
            await trio.sleep(0.2)

    async def _ask(self, host: Life, order: Order) -> None:
        ends = [await self._end_of(host, order) for _ in range(2)]
        if ends[0] != ends[1]:
            self.report.faults.append(f"{order.key} has two ends: {ends}")
        if ends[0] == "ok":
            self.report.answered += 1
        elif "may have been" in ends[0]:
            self.report.unknown += 1
        else:
            self.report.faults.append(f"{order.key} to {order.agent}: {ends[0]}")

    async def _end_of(self, host: Life, order: Order) -> str:
        try:
            return (await host.fleet.agent(order.agent).ask(order.prompt, key=order.key)).outcome
        except REFUSALS as error:
            return str(error)

    async def _check_bill(self) -> None:
        """Compare what is billed with what the conversations have cost, as the scripted agents themselves keep it."""
        command = (sys.executable, "-m", "proctor", "cost", "-o", "json")
        done = await trio.run_process(command, env=self._environment, cwd=self._folder, capture_stdout=True)
        self.report.bill = sum(
            row["cost_usd"] or 0
            for row in json.loads(done.stdout)
            if row["agent"] not in ("total", *self._real)
        )
        files = (self._disk / "proctor" / "scripted").glob("*.json")
        spent = sum(json.loads(file.read_text())["cost"] for file in files)
        if abs(self.report.bill - spent) >= 0.005:
            self.report.faults.append(
                f"the bill is ${self.report.bill:.2f}, and agents have spent ${spent:.2f}"
            )

    def _check_rest(self) -> None:
        """Look at what was written to agents, and for processes and sockets that are left."""
        written = Counter[str]()
        for path in self._disk.rglob("stdin.ndjson"):
            text = path.read_text(errors="replace")
            for order in self._orders:
                written[order.key] += text.count(f"<{order.key}>")
        twice = [key for key, count in written.items() if count > 1]
        if twice:
            self.report.faults.append(f"written to an agent twice: {twice}")
        if left := self._left():
            self.report.faults.append(f"processes left behind: {left}")
        if sockets := [path.name for path in (self._folder / "runtime" / "proctor").glob("*.sock")]:
            self.report.faults.append(f"sockets are left: {sockets}")

    def _left(self) -> list[int]:
        mark, found = f"HOME={self._folder}".encode(), list[int]()
        for pid in procfs.pids():
            with suppress(OSError):
                if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps([f"{name}={text}" for name, text in value.items()])
    return json.dumps(value if isinstance(value, (int, list, tuple)) else str(value))


# -- the program


async def weekend(folder: Path, choice: Choice) -> Report:
    """The weekend that was asked for, in `folder`."""
    for name in ("disk", "runtime"):
        (folder / name).mkdir(mode=0o700)
    random = Random(choice.seed)
    made = Weekend(folder, random, choice.agents - choice.real - QUESTIONS - 2, choice.kills)
    made.can_fill = choice.is_mounted and _mounts(folder / "disk")
    made.add_scripted()
    async with AsyncExitStack() as stack:
        if choice.real:
            await add_real(made, folder, choice.real, stack)
        return await made.run()


async def add_real(made: Weekend, folder: Path, count: int, stack: AsyncExitStack) -> None:
    """Put `count` real command lines in, against fakes of their APIs. Raises `InstallError`."""
    answers = Repeat(Text("did it"))
    messages = await stack.enter_async_context(open_messages_api())
    messages.answer_with(lambda _: answers.step)
    responses = await stack.enter_async_context(open_responses_api(answers))
    completions = await stack.enter_async_context(open_completions_api(answers))
    programs = await trio.to_thread.run_sync(CLIS.install)
    claude = max(name for name in programs if name.startswith("claude-"))
    for number in range(count):
        home = folder / f"real-{number}"
        match number % 3:
            case 0:
                options = {
                    "executable": programs[claude],
                    **_place(make_home(home, messages.url)),
                    "retries": 2,
                }
                made.add_real("claude", options)
            case 1:
                place = codex_home(home, responses.url)
                codex = codex_options(programs["codex-0.169.0"], place, responses.url)
                made.add_real("codex", {**codex, **_place(place)})
            case _:
                place = opencode_home(home, completions.url)
                made.add_real(
                    "opencode",
                    {"executable": programs["opencode-1.18.33"], "model": "fake/m1", **_place(place)},
                )


def _place(home: ClaudeHome) -> dict[str, Any]:
    return {"cwd": home.work, "env": home.environment}


def _mounts(folder: Path) -> bool:
    """Mount a file system of its own at `folder`, if this process may."""
    command = ("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder))
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.weekend")
    parser.add_argument("--agents", type=int, default=50, help="agents of the fleet, the real ones included")
    parser.add_argument("--real", type=int, default=10, help="real command lines among them")
    parser.add_argument("--kills", type=int, default=20, help="how often the host is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.mounted and shutil.which("unshare") and arguments is None:
        # in a mount namespace of its own: what it mounts goes with it
        inside = ("unshare", "--user", "--map-root-user", "--mount")
        if subprocess.run((*inside, "true"), stderr=subprocess.DEVNULL, check=False).returncode == 0:
            os.execvp(
                "unshare", (*inside, sys.executable, "-m", "tests.chaos.weekend", *sys.argv[1:], "--mounted")
            )
    choice = Choice(
        agents=given.agents, real=given.real, kills=given.kills, seed=given.seed, is_mounted=given.mounted
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weekend-") as folder:
        try:
            report = trio.run(weekend, Path(folder), choice)
        finally:
            subprocess.run(
                ("umount", "--lazy", str(Path(folder, "disk"))), stderr=subprocess.DEVNULL, check=False
            )
    sys.stdout.writelines(f"{line}\n" for line in report.lines())
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    return int(bool(report.faults))


if __name__ == "__main__":
    sys.exit(main())
