"""Agents whose command line is stopped, mute or dead in ways that only the operating system can make, all at once: what
they wait for are clocks of some seconds each."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

import proctor
from proctor.actors.errors import AskTimeout, MaybeExecuted
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.specs import agent_spec
from proctor.actors.transport.transport import ProcessTransport, Start
from proctor.runtime.processes.condition import Condition
from proctor.runtime.processes.process import Command, open_process
from proctor.runtime.processes.procfs import children_of, sample_tree
from tests.actors.far_end import codes, log_of
from tests.protocols.lines import INIT, assistant, ended, reply, text
from tests.runtime.programs import AT_ONCE, everything, line, python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")

ACTS: Mapping[str, str] = {
    "stopped while it writes": "say(TEXT); os.kill(os.getpid(), 19)",
    "stopped while a tool runs": "say(TOOL); os.kill(os.getpid(), 19)",
    "stopped between two turns": "say(DONE); os.kill(os.getpid(), 19)",
    "outputs closed": "os.close(1); os.close(2); time.sleep(1000)",
    "guard stopped, program dead": "os.kill(os.getppid(), 19); os._exit(3)",
    "all stopped": "os.kill(os.getppid(), 19); os.kill(os.getpid(), 19)",
    "no more read": "say(DONE); time.sleep(1000)",
}
"""What the first process of an agent does when it is asked for it."""

BIG = "x" * 1_000_000
PROGRAM = """
import json, os, sys, time
INIT, TEXT, TOOL, DONE, REPLY = {lines!r}
first = not os.path.exists({mark!r})
open({mark!r}, "w").close()
def say(line):
    os.write(1, line)
for said in sys.stdin.buffer:
    frame = json.loads(said)
    if frame["type"] == "control_request":
        say(REPLY.replace(b"REQUEST", frame["request_id"].encode()))
        if frame["request"]["subtype"] == "end_session":
            break
        continue
    say(INIT)
    if first and frame["message"]["content"] == "act":
        {act}
    else:
        say(DONE)
"""


def program(act: str, mark: Path) -> str:
    lines = (
        INIT,
        assistant(text("Let me see.")),
        assistant({"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}),
        ended(subtype="success", is_error=False, result="done"),
        reply("REQUEST", pid=1),
    )
    return PROGRAM.format(lines=lines, mark=str(mark), act=act)


def reach(act: str, mark: Path, start: Start) -> ProcessTransport:
    argv = (sys.executable, "-I", "-S", "-c", program(act, mark))
    return ProcessTransport(attrs.evolve(start, command=attrs.evolve(start.command, argv=argv)))


def plan(name: str, act: str, folder: Path) -> Plan:
    made = claude_plan(name, {"home": "private", "silence": 60.0, "final": 0.5}, shutdown=2.0)
    return attrs.evolve(made, product=None, reach=partial(reach, act, folder / name))


async def act_and_go_on(agent: proctor.Agent) -> None:
    """The turn that hangs ends by itself, or with the first one after it, and the next is answered."""
    with trio.fail_after(40):
        try:
            await agent.ask("act")
            await agent.ask(BIG, timeout=1)
        except (MaybeExecuted, AskTimeout):
            pass
        assert (await agent.ask("next")).text == "done", agent.name
        status = await agent.status()
    assert (status.incarnation, status.unresponsive) == (2, ""), agent.name
    seen = codes(await log_of(agent))
    assert "resumed" in seen, agent.name
    assert "stalled" in seen, agent.name


async def test_whatever_a_process_does_to_itself_or_its_guard_its_agent_goes_on(tmp_path: Path) -> None:
    specs = [agent_spec(name, plan(name, act, tmp_path), {}) for name, act in ACTS.items()]
    async with proctor.open_supervisor(specs, intensity=100) as sup, trio.open_nursery() as nursery:
        for name in ACTS:
            nursery.start_soon(act_and_go_on, sup.agent(name))


CONDITIONS: Mapping[str, Condition] = {
    "pass": Condition(guard="running"),
    "os.close(1)": Condition(stdout="closed", guard="running"),
    "os.close(2)": Condition(stderr="closed", guard="running"),
    "os.close(0)": Condition(stdin="closed", guard="running"),
    "os.kill(os.getpid(), 19)": Condition(process="stopped", guard="running"),
    "os.kill(os.getppid(), 19)": Condition(guard="stopped"),
    "os.kill(os.getppid(), 19); os._exit(3)": Condition(
        stdout="closed", stderr="closed", stdin="closed", process="dead", guard="stopped"
    ),
}


@pytest.mark.parametrize(("act", "condition"), CONDITIONS.items(), ids=range(len(CONDITIONS)))
async def test_a_condition_is_what_the_system_says_of_a_process_its_pipes_and_its_guard(
    act: str, condition: Condition
) -> None:
    command = python(f"import os, time; os.write(1, b'up\\n'); {act}; time.sleep(1000)")
    async with open_process(command, ladder=AT_ONCE, guard=True) as process:
        assert await line(process) == b"up\n"
        if condition.stdout == "closed":
            assert await everything(process) == b""
        with trio.fail_after(10):
            while process.condition != condition:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.01)
    assert process.condition.process == process.condition.guard == "dead"


async def test_a_process_without_a_guard_has_none_in_its_condition() -> None:
    command = Command(("sleep", "1000"), {"PATH": os.environ["PATH"]})
    async with open_process(command, ladder=AT_ONCE) as process:
        assert process.condition == Condition()
        process.signal(signal.SIGSTOP)
        with trio.fail_after(10):
            while process.condition.process != "stopped":  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.01)


async def test_a_tree_is_sampled_with_what_each_process_has_used() -> None:
    work = "import os, time; d = b'x' * 1000000; e = os.open('/dev/null', 1)\nfor _ in range(300): os.write(e, d)\n"
    async with open_process(
        python(f"{work}print('up', flush=True); time.sleep(1000)"), ladder=AT_ONCE, guard=True
    ) as process:
        await line(process)
        guard, worker = sample_tree(process.pid)
        assert (guard.pid, worker.pid) == (process.pid, process.leader_pid)
        assert [worker.pid] == children_of(guard.pid)
        assert worker.io >= 300_000_000
        assert (guard.state, worker.name[:6]) == ("S", "python")
    assert sample_tree(process.pid) == ()
