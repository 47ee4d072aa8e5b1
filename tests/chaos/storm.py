"""A fleet in a storm: scripted agents that are asked all the time, while something happens to one of them.

Guaranteed to the caller, or told as a fault in the `Report`: each request has exactly one end, and none hangs; when the
tree is left there is no process, descriptor or task that was not there before; the memory does not grow with the time.

The same seed does the same deeds to the same agents in the same order; what they meet there is the machine's affair.
Real processes and real time: nothing here is repeatable to the millisecond.
"""

from __future__ import annotations

import gc
import json
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs
import trio

import proctor
from proctor.actors.operations.loop_watch import Hold, watch_loop
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import scripted_plan
from proctor.actors.specs import Supervisor, agent_spec
from proctor.runtime.errors import Restarting, Running, StartError
from proctor.runtime.exits import DeliveryError
from proctor.runtime.processes import procfs
from proctor.runtime.spec import Backoff, ChildSpec
from tests.chaos.machine import full_disk, no_descriptors
from tests.runtime.belongings import children, descriptors, tasks

PATIENCE = 30.0
"""Seconds after which a request that has no end is called hanging. Longer than any clock of an agent in the storm."""

SOON = Backoff(min_delay=0.05, max_delay=0.5)
"""A back-off of seconds would leave most agents down for most of the storm, where little can happen to them."""

GROWTH, ROOM = 1.2, 5e6
"""What the memory may grow by in the last two thirds: a share, and bytes."""

TRIES = 10
"""Starts by hand before a child is given up."""

SCRIPT: Sequence[Mapping[str, Any]] = (
    {"turn": "silence", "when": "silence"},
    {"say": "begun"},
    {"fault": "hang"},
    {"turn": "stop", "when": "stop"},
    {"say": "begun"},
    {"fault": "stop"},
    {"reply": "after the stop"},
    {"turn": "mute", "when": "mute"},
    {"say": "begun"},
    {"fault": "mute"},
    {"turn": "crash", "when": "crash"},
    {"say": "begun"},
    {"fault": "crash"},
    {"turn": "cut", "when": "cut"},
    {"fault": "cut"},
    {"turn": "garbage", "when": "garbage"},
    {"fault": "garbage:20"},
    {"reply": "after garbage"},
    {"turn": "flood", "when": "flood"},
    {"fault": "flood:2000"},
    {"reply": "after the flood"},
    {"turn": "limit", "when": "limit"},
    {"fault": "limit:1@once"},
    {"reply": "after the limit"},
    {"turn": "tool", "when": "tool"},
    {"tool": "Bash", "run": "sleep 0.2; echo done"},
    {"reply": "after the tool"},
    {"turn": "stuck", "when": "stuck"},
    {"tool": "Bash", "run": "sleep 600"},
    {"reply": "after a tool that never ended"},
    {"turn": "ask", "when": "ask"},
    {"tool": "Bash", "input": {"command": "ls"}, "ask": True, "result": "a b"},
    {"reply": "after the question"},
    {"turn": "error", "when": "error"},
    {"end": "api_error"},
    {"turn": "daemon", "when": "daemon"},
    {"fault": "daemon:60"},
    {"reply": "something is left running"},
    {"turn": "slow", "when": "slow"},
    {"say": "a slow answer comes in pieces", "deltas": 10, "delay": 0.05},
    {"reply": "slowly"},
    {"turn": "plain"},
    {"reply": "{prompt}", "deltas": 4},
)
PROMPTS: Mapping[str, int] = {"plain": 8, "slow": 4, "tool": 2, "ask": 2} | dict.fromkeys(
    ("silence", "stop", "stuck", "mute", "crash", "cut", "garbage", "flood", "limit", "error", "daemon"), 1
)
"""What agents are asked, and how often beside each other."""


TRAITS: Sequence[tuple[str, ...]] = (
    ("refuse_resume",),
    ("slow:0.002",),
    ("ignore_eof", "ignore_term"),
    (),
    (),
)
"""How an agent is by nature, one after the other."""

MOMENT = 0.4
"""Seconds that a shortage or a stop lasts."""

EXPECTED = ("ok", "failed", "interrupted", "limited")
"""What an answer may say in a storm, in which nothing is configured wrongly."""


@attrs.frozen(kw_only=True)
class Weather:
    """How much of it: agents, seconds, the seconds between two deeds, the chance's seed, the wires spoken. It blows on
    until there were so many `deeds`. A pass of the loop may compute for the seconds of `hold`."""

    agents: int = 50
    seconds: float = 5.0
    gap: float = 0.1
    deeds: int = 0
    seed: int = 1
    dialects: tuple[str, ...] = ("claude",)
    hold: float = 60.0


@attrs.define
class Report:
    """What came of it. `faults` is empty when every promise held; memory in bytes: after a third, and at the end."""

    requests: int = 0
    ends: Counter[str] = attrs.field(factory=Counter[str])
    deeds: Counter[str] = attrs.field(factory=Counter[str])
    faults: list[str] = attrs.field(factory=list[str])
    memory: tuple[int, int] = (0, 0)
    longest: Hold | None = None
    collection: float = 0.0

    def lines(self) -> list[str]:
        """The report for a person."""
        return [
            f"requests {self.requests}",
            *(f"  {name} {count}" for name, count in self.ends.most_common()),
            f"deeds {self.deeds.total()}",
            *(f"  {name} {count}" for name, count in self.deeds.most_common()),
            f"memory {self.memory[0] / 1e6:.1f} MB after a third, {self.memory[1] / 1e6:.1f} MB at the end",
            f"longest collection of garbage {self.collection:.3f} s",
            *(f"FAULT {fault}" for fault in self.faults or ["none"]),
        ]


def computed_itself(hold: Hold) -> float:
    """The seconds that a pass computed, without those for garbage."""
    return hold.computed - min(hold.collected, hold.computed)


class Storm:
    """One run: a tree of agents, a client for each, and the weather."""

    def __init__(self, weather: Weather, folder: Path) -> None:
        self.weather = weather
        self.folder = folder
        self.token = secrets.token_hex(8)
        self.report = Report()
        self.chance = random.Random(weather.seed)
        self.ids = [f"agent-{n}" for n in range(weather.agents)]
        self.open: set[str] = set()
        self.short = False

    async def run(self) -> Report:
        """Let it blow for its seconds, and look at what is left."""
        before = await self.belongings()
        here = trio.lowlevel.current_task()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.give_up, here, nursery.cancel_scope)
            await self.live()
            nursery.cancel_scope.cancel("the tree has ended")
        self.compare(before, await self.belongings())
        if self.report.longest is not None:
            self.report.faults.append(str(self.report.longest))
        return self.report

    async def give_up(self, main: trio.lowlevel.Task, scope: trio.CancelScope) -> None:
        """End a tree that hangs, and report where its tasks wait."""
        await trio.sleep(self.weather.seconds + 4 * PATIENCE)
        waits = "; ".join(places_below(main))
        self.report.faults.append(f"the tree did not end; open: {sorted(self.open)}; waiting: {waits}")
        scope.cancel("it hangs")

    async def live(self) -> None:
        """The life of the tree, in a frame of its own: a log's file is open as long as somebody holds its agent."""
        tree = proctor.open_supervisor(self.children(), intensity=1_000_000, period=1.0)
        with watch_loop(self.weather.hold, self.on_hold):
            async with tree as supervisor:
                await self.blow(supervisor)

    def on_hold(self, hold: Hold) -> None:
        """A pass of the loop was too long: a fault where it computed so long, and not for the storm itself.

        Garbage is reported apart: it is what crashes leave, some thousand a minute here, and falls on whatever runs then.
        """
        self.report.collection = max(self.report.collection, hold.collected)
        if Path(__file__).name in hold.stack or computed_itself(hold) <= self.weather.hold:
            return
        if self.report.longest is None or computed_itself(hold) > computed_itself(self.report.longest):
            self.report.longest = hold

    def children(self) -> list[ChildSpec]:
        script = self.folder / "script.ndjson"
        script.write_text("".join(json.dumps(step) + "\n" for step in SCRIPT))
        return [self.child(number, script) for number in range(self.weather.agents)]

    def child(self, number: int, script: Path) -> ChildSpec:
        env = {"CLAUDE_CONFIG_DIR": str(self.folder / "sessions"), "PROCTOR_STORM": self.token}
        options: AgentOptions = {
            "env": env,
            "silence": 1.5,
            "tool_silence": 2.0,
            "greeting": 10.0,
            "final": 0.5,
            "permission": self.chance.choice(("allow", "deny")),
            "on_crash": self.chance.choice(("fail", "fail", "resume", "retry")),
            "record": self.folder / "runs",
        }
        faults = TRAITS[number % len(TRAITS)]
        dialect = self.weather.dialects[number % len(self.weather.dialects)]
        id = self.ids[number]
        plan = scripted_plan(id, script, options, dialect=dialect, faults=faults, shutdown=3.0)
        return agent_spec(id, plan, {"shutdown": 5.0, "backoff": SOON})

    async def blow(self, supervisor: Supervisor) -> None:
        async with trio.open_nursery() as nursery:
            ended = trio.Event()
            for id in self.ids:
                nursery.start_soon(self.client, supervisor, id, random.Random(self.chance.random()), ended)
            nursery.start_soon(self.measure)
            await self.strike(supervisor, nursery)
            ended.set()

    # -- who asks

    async def client(self, supervisor: Supervisor, id: str, chance: random.Random, ended: trio.Event) -> None:
        """Ask one agent again and again, until the storm is over."""
        agent, prompts, weights = supervisor.agent(id), list(PROMPTS), list(PROMPTS.values())
        while not ended.is_set():
            kind = chance.choices(prompts, weights)[0]
            timeout = chance.choice((0.3, 5.0, 5.0, 5.0))
            taken = await self.ask(f"{kind} {id} {self.report.requests}", agent, timeout)
            await trio.sleep(chance.random() * (0.1 if taken else 2.0))

    async def ask(self, prompt: str, agent: proctor.Agent, timeout: float) -> bool:
        """Ask once, and count how it ended. False when nobody was there, which is found out at once."""
        end = ""
        self.report.requests += 1
        self.open.add(prompt)
        with trio.move_on_after(PATIENCE) as patience:
            end = await self.end_of(prompt, agent, timeout)
            self.report.ends[end] += 1
        if patience.cancelled_caught:
            self.report.faults.append(f"no end within {PATIENCE:g} s: {prompt}")
        self.open.discard(prompt)
        return end != "NoProc"

    async def end_of(self, prompt: str, agent: proctor.Agent, timeout: float) -> str:
        try:
            answer = await agent.ask(prompt, timeout=timeout)
        except (proctor.AgentError, DeliveryError) as error:
            return type(error).__name__
        if answer.outcome not in EXPECTED:
            self.report.faults.append(f"{prompt}: {answer.outcome}: {answer.error}")
        return answer.outcome

    # -- what happens to them

    async def strike(self, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        until = trio.current_time() + self.weather.seconds
        while trio.current_time() < until or self.report.deeds.total() < self.weather.deeds:
            await trio.sleep(self.weather.gap)
            name, id = self.chance.choice(sorted(DEEDS)), self.chance.choice(self.ids)
            self.report.deeds[name] += 1
            nursery.start_soon(DEEDS[name], self, supervisor, id)

    async def kill_cli(self, _supervisor: Supervisor, id: str) -> None:
        self.signal(self.below(id, guard=False), signal.SIGKILL)

    async def kill_guard(self, _supervisor: Supervisor, id: str) -> None:
        self.signal(self.below(id, guard=True), signal.SIGKILL)

    async def freeze(self, _supervisor: Supervisor, id: str) -> None:
        await self.pause(self.below(id, guard=False))

    async def freeze_guard(self, _supervisor: Supervisor, id: str) -> None:
        await self.pause(self.below(id, guard=True))

    async def pause(self, pid: int | None) -> None:
        started = pid and procfs.stat_of(pid)
        self.signal(pid, signal.SIGSTOP)
        await trio.sleep(MOMENT)
        if pid and started and (now := procfs.stat_of(pid)) and now.start == started.start:
            self.signal(pid, signal.SIGCONT)

    async def stop(self, _supervisor: Supervisor, id: str) -> None:
        """Stopped and never continued: what its agent's clocks are for."""
        self.signal(self.below(id, guard=False), signal.SIGSTOP)

    async def stop_both(self, _supervisor: Supervisor, id: str) -> None:
        program, guard = self.below(id, guard=False), self.below(id, guard=True)
        self.signal(program, signal.SIGSTOP)
        self.signal(guard, signal.SIGSTOP)

    async def fill_disk(self, _supervisor: Supervisor, _id: str) -> None:
        await self.lack(full_disk())

    async def take_descriptors(self, _supervisor: Supervisor, _id: str) -> None:
        await self.lack(no_descriptors())

    async def lack(self, shortage: AbstractContextManager[None]) -> None:
        if not self.short:  # each puts back what it found, so they cannot overlap
            self.short = True
            with shortage:
                await trio.sleep(MOMENT)
            self.short = False

    async def terminate(self, _supervisor: Supervisor, id: str) -> None:
        self.signal(self.below(id, guard=False), signal.SIGTERM)

    async def restart(self, supervisor: Supervisor, id: str) -> None:
        await supervisor.terminate_child(id)
        for _ in range(TRIES):
            try:
                await supervisor.restart_child(id)
            except StartError:
                continue  # its start was struck as well: who starts a child by hand tries again by hand
            except (Running, Restarting):
                pass  # another deed was quicker
            return

    async def interrupt(self, supervisor: Supervisor, id: str) -> None:
        try:
            await supervisor.agent(id).interrupt()
        except DeliveryError:
            return

    async def look(self, supervisor: Supervisor, id: str) -> None:
        with trio.move_on_after(5):
            try:
                await supervisor.agent(id).status()
            except DeliveryError:
                return

    def below(self, id: str, *, guard: bool) -> int | None:
        """A process of this agent's: the guard, which is our child, or the program below it."""
        own = self.family()
        guards = [pid for pid, parent in own.items() if parent == os.getpid()]
        programs = [pid for pid, parent in own.items() if parent in guards]
        place = self.ids.index(id)
        found = guards if guard else programs
        return found[place % len(found)] if found else None

    def signal(self, pid: int | None, number: int) -> None:
        try:
            if pid is not None:
                os.kill(pid, number)
        except ProcessLookupError:
            return

    def family(self) -> dict[int, int]:
        """Every process that carries our word in its environment, zombies aside, with its parent."""
        word = f"PROCTOR_STORM={self.token}".encode()
        found: dict[int, int] = {}
        for pid in procfs.pids():
            try:
                carries = word in Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            stat = procfs.stat_of(pid) if carries else None
            if stat is not None and stat.state != "Z":
                found[pid] = stat.parent
        return found

    # -- what is left

    async def belongings(self) -> dict[str, list[str]]:
        """Descriptors, children and tasks of this process."""
        gc.collect()
        await trio.lowlevel.checkpoint()
        held = {"descriptors": [*descriptors().values()], "children": [*map(str, children())]}
        return {**held, "tasks": ["task"] * tasks()}

    def compare(self, before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
        for name, was in before.items():
            if more := Counter(after[name]) - Counter(was):
                self.report.faults.append(f"{name} too many: {dict(more)}")
        if left := self.family():
            names = {pid: stat.name for pid in left if (stat := procfs.stat_of(pid))}
            self.report.faults.append(f"processes left behind: {names}")
        if self.report.ends.total() + len(self.open) != self.report.requests:
            self.report.faults.append(f"{self.report.requests} requests, {self.report.ends.total()} ends")

    async def measure(self) -> None:
        await trio.sleep(self.weather.seconds / 3)
        early = resident()
        await trio.sleep(self.weather.seconds * 2 / 3)
        late = resident()
        self.report.memory = (early, late)
        if late > early * GROWTH + ROOM:
            self.report.faults.append(f"memory: {early} bytes after a third, {late} at the end")


DEEDS: Mapping[str, Callable[[Storm, Supervisor, str], Awaitable[None]]] = {
    "kill -9 of the program": Storm.kill_cli,
    "kill -9 of the guard": Storm.kill_guard,
    "SIGSTOP, then SIGCONT": Storm.freeze,
    "SIGSTOP of the guard": Storm.freeze_guard,
    "SIGSTOP of the program, for good": Storm.stop,
    "SIGSTOP of program and guard, for good": Storm.stop_both,
    "a full disk": Storm.fill_disk,
    "no descriptors": Storm.take_descriptors,
    "SIGTERM of the program": Storm.terminate,
    "terminate and restart": Storm.restart,
    "interrupt": Storm.interrupt,
    "status": Storm.look,
}


def places_below(task: trio.lowlevel.Task) -> list[str]:
    """Where a task and each below it waits, innermost frames last."""
    frames = [f"{Path(f.f_code.co_filename).name}:{number}" for f, number in task.iter_await_frames()]
    found = [f"{task.name} {' > '.join(frames[-5:])}"]
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            found += places_below(child)
    return found


def resident() -> int:
    """Bytes of memory that this process holds now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
