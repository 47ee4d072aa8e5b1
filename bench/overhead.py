"""What we add to a command line: CPU time of ours for each turn, and time until it is ready.

    python -m bench.overhead [--turns 50] [--starts 9]

A turn is one `ask` of an agent that is held in a tree: mailbox, prompt, frames, events, recording and log on disk. A
start is from nothing to the reply to the greeting; the bare one beside it is the same command line with the same
environment, started by `subprocess` and sent the same bytes. The two take turns, and medians are told.

The scripted agent is always there. A real command line has its rows where the tests have installed it, Codex as its app
server and OpenCode by ACP; its model is the tests' fake of the API, in a process of its own, and its home is a temporary
one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import attrs
import trio

from bench.contest import Stopwatch, options
from bench.peers.entries import MISSING
from proctor.actors.plan.environment import build_environment
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan, codex_plan, opencode_plan, scripted_plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.specs import agent_spec, open_supervisor
from proctor.protocols.conversation import Conversation
from tests.clis import install
from tests.real.agents import codex_home, codex_options, opencode_home
from tests.real.homes import make_home

TURNS, STARTS = 50, 9
BOUND = 60.0
FAKE = """
import trio
from tests.fakes.{opener}
from tests.fakes.steps import Repeat, Text

async def main():
    async with opened(Repeat(Text("Well."))) as api:
        print(api.url, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""
MESSAGES = "messages_api import open_messages_api as opened"
RESPONSES = "responses_api import open_responses_api as opened"
COMPLETIONS = "model_api import open_completions_api as opened"


@contextmanager
def fake_api(opener: str) -> Generator[str]:
    """The URL of a model's API that always says the same, in another process."""
    command = [sys.executable, "-c", FAKE.format(opener=opener)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as api:
        assert api.stdout is not None
        try:
            yield api.stdout.readline().strip()
        finally:
            api.kill()


def scripted(stack: ExitStack, turns: int) -> Plan:
    """The agent that is played from a script."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="proctor-bench-"))
    script = Path(folder, "script.ndjson")
    script.write_text('{"reply": "Well."}\n' * (turns + 1))
    return scripted_plan("scripted", script, {"cwd": folder})


def claude(executable: Path, folder: Path, stack: ExitStack) -> Plan:
    """Claude Code."""
    home = make_home(folder, stack.enter_context(fake_api(MESSAGES)))
    return claude_plan("claude", {"executable": executable, "cwd": home.work, "env": home.environment})


def codex(executable: Path, folder: Path, stack: ExitStack) -> Plan:
    """Codex."""
    url = stack.enter_context(fake_api(RESPONSES))
    return codex_plan("codex", codex_options(executable, codex_home(folder, url), url))


def opencode(executable: Path, folder: Path, stack: ExitStack) -> Plan:
    """OpenCode."""
    home = opencode_home(folder, stack.enter_context(fake_api(COMPLETIONS)))
    chosen: AgentOptions = {"cwd": home.work, "env": home.environment, "model": "fake/m1", "greeting": BOUND}
    return opencode_plan("opencode", {**chosen, "executable": executable})


REAL: Mapping[str, Callable[[Path, Path, ExitStack], Plan]] = {
    "claude": claude,
    "codex": codex,
    "opencode": opencode,
}
"""By the first word of an alias; those of adapters and of other programs have no row."""


def real(alias: str, stack: ExitStack, turns: int) -> Plan | None:
    """A real one, None where the tests have not installed it."""
    executable = install.CLIS.executable(install.CLIS.trees / install.CLIS.fingerprint(), alias)
    if executable is None:
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proctor-bench-")))
    return REAL[alias.partition("-")[0]](executable, folder, stack)


CLIS: Mapping[str, Callable[[ExitStack, int], Plan | None]] = {
    "scripted": scripted,
    **{alias: partial(real, alias) for alias in install.CLIS.pinned() if alias.rpartition("-")[0] in REAL},
}


@attrs.frozen
class Cost:
    """Milliseconds: `turn` of CPU for each turn; until ready `bare` and `ours`, with `start` of CPU for ours."""

    turn: float
    bare: float
    ours: float
    start: float


async def turns(plan: Plan, count: int) -> float:
    """CPU seconds of ours for each of so many turns, after one that is not counted."""
    async with open_supervisor([agent_spec(plan.name, plan, {})]) as tree:
        agent = tree.agent(plan.name)
        await agent.ask("Well?", timeout=BOUND)
        with Stopwatch() as watch:
            for _ in range(count):
                await agent.ask("Well?", timeout=BOUND)
    return watch.cpu / count


async def started(plan: Plan) -> Stopwatch:
    """An incarnation, to ready."""
    with closing(RunDirectory(None, "bench")) as directory:
        live = AgentProcess(plan, EventLog(directory.path / "events.ndjson"), directory)
        with Stopwatch() as watch:
            async with trio.open_nursery() as nursery:
                await nursery.start(live.serve)
                watch.stop()
                wall, cpu = watch.wall, watch.cpu
                live.kill()
        watch.wall, watch.cpu = wall, cpu
    return watch


def bare(plan: Plan) -> float:
    """The seconds until the same command line has replied to the same greeting."""
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as scratch:
        wanted = plan.opening(resume=None, fork=False)
        launch = attrs.evolve(wanted, executable=plan.locate(), scratch=scratch)
        command = plan.dialect.launch(launch)
        place = plan.workplace
        env = build_environment(place.env, home=place.home, private=Path(scratch), extra=command.env)
        talk = Conversation(plan.dialect, launch=wanted)
        begun = time.perf_counter()
        with subprocess.Popen(
            command.argv,
            env=env.variables,
            cwd=place.cwd,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        ) as child:
            _greet(talk, child)
            seconds = time.perf_counter() - begun
            child.kill()
    return seconds


def _greet(talk: Conversation, child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(talk.greet())
    while not talk.memo.greeted:
        said = child.stdout.read(65536)
        assert said, f"it ended with status {child.wait()} before it was ready"
        talk.receive(said)
        child.stdin.write(talk.data_to_send())


def cost(plan: Plan, count: int, starts: int) -> Cost:
    """All of one command line."""
    pairs = [(bare(plan), trio.run(started, plan)) for _ in range(starts)]
    return Cost(
        turn=trio.run(turns, plan, count) * 1e3,
        bare=median(seconds for seconds, _ in pairs) * 1e3,
        ours=median(watch.wall for _, watch in pairs) * 1e3,
        start=median(watch.cpu for _, watch in pairs) * 1e3,
    )


def rows(count: int, starts: int, names: Iterable[str] = tuple(CLIS)) -> dict[str, Cost | None]:
    """The command lines of these names, by default all; None for one that is not there."""
    found: dict[str, Cost | None] = {}
    for name in names:
        with ExitStack() as stack:
            plan = CLIS[name](stack, count)
            found[name] = None if plan is None else cost(plan, count, starts)
    return found


HEADINGS = (
    "command line",
    "turn, our CPU ms",
    "ready bare, ms",
    "ready, ms",
    "added, ms",
    "start, our CPU ms",
)


def table(rows: Mapping[str, Cost | None]) -> str:
    """Markdown, one row per command line."""
    cells = [HEADINGS, ("---", *["--:"] * 5)]
    for name, told in rows.items():
        cells.append((name, *(_cells(told) if told else (MISSING, *[""] * 4))))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cells(told: Cost) -> tuple[str, ...]:
    figures = (told.turn, told.bare, told.ours, told.ours - told.bare, told.start)
    return tuple(f"{figure:.1f}" for figure in figures)


def main() -> None:
    """Print the table."""
    chosen = options("What we add to a command line", turns=TURNS, starts=STARTS)
    print(table(rows(chosen.turns, chosen.starts)))


if __name__ == "__main__":
    main()
