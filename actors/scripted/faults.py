"""The faults, by name. Those that last as long as the process are looked up where they matter."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.interfaces import RunningTurn, TurnDone
from proctor.actors.scripted.script import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MEGABYTE = 1_000_000


def act(agent: Agent, fault: Fault) -> None:
    """Carry out a fault; TurnDone when it ended the turn."""
    FIRE[fault.name](agent, fault)


def crash(agent: Agent, _fault: Fault) -> None:
    agent.kill_self(signal.SIGKILL)


def cut(agent: Agent, _fault: Fault) -> None:
    """As a step of a script: half a frame, then death. By flag, `cut_due` halves the frame itself."""
    line = agent.wire.delta_line("cut")
    agent.pipes.write(line[: len(line) // 2])
    agent.kill_self(signal.SIGKILL)


def leave(agent: Agent, fault: Fault) -> None:
    agent.leave_now(int(fault.number))


def hang(_agent: Agent, _fault: Fault) -> NoReturn:
    while True:
        signal.pause()


def stop(_agent: Agent, _fault: Fault) -> None:
    """Be stopped, as by SIGSTOP from outside; continued, the turn goes on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def mute(agent: Agent, fault: Fault) -> None:
    """Close stdout and stderr, and stay."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)  # what is written later must not fail
    hang(agent, fault)


def flood(agent: Agent, fault: Fault) -> None:
    """So many pieces of text as fast as they go: a plain number is lines, one with a unit is bytes."""
    line = agent.wire.delta_line("12345678") + b"\n"
    count = math.ceil(fault.number / len(line)) if fault.arg.endswith("B") else int(fault.number)
    for start in range(0, count, 1000):
        agent.pipes.write(line * min(1000, count - start))


def garbage(agent: Agent, fault: Fault) -> None:
    agent.pipes.write(b"[SandboxDebug] this line is not JSON\n" * int(fault.number))


def bad_utf8(agent: Agent, _fault: Fault) -> None:
    agent.pipes.write(b'{"type":"system","subtype":"informational","content":"\xff\xfe\xc3"}\n')


def oversized(agent: Agent, fault: Fault) -> None:
    """One frame of so many megabytes; with a unit, of so many bytes."""
    length = int(fault.number if fault.arg.endswith("B") else fault.number * MEGABYTE)
    agent.wire.whole_text("x" * length)


def stderr(agent: Agent, fault: Fault) -> None:
    line = b"scripted: " + b"e" * 89 + b"\n"
    agent.pipes.write((line * (int(fault.number) // len(line) + 1))[: int(fault.number)], 2)


def daemon(agent: Agent, fault: Fault) -> None:
    """Leave a process in a session of its own, which no signal to our group reaches; a notice tells its pid."""
    import subprocess

    null = subprocess.DEVNULL
    command = ["sleep", str(fault.number)]
    child = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
    agent.wire.notice(f"left process {child.pid} running", "daemon")
    child.returncode = 0


def limit(agent: Agent, fault: Fault) -> None:
    """The usage limit, once in a session, until the time that it names; after it the turn goes on."""
    state = agent.state
    if "limit_until" not in state:
        state["limit_until"] = math.ceil(time.time() + fault.number)
        agent.save()
    playing(agent).refuse_until_reset()


def auth(agent: Agent, fault: Fault) -> None:
    for attempt in range(int(fault.number)):
        playing(agent).retrying(attempt + 1, int(fault.number), 401, "authentication_failed")
    playing(agent).end("authentication")
    raise TurnDone


def retry(agent: Agent, fault: Fault) -> None:
    for attempt in range(int(fault.number)):
        playing(agent).retrying(attempt + 1, 10, 500, "server_error")


def error_then_silence(agent: Agent, fault: Fault) -> None:
    agent.wire.complain("API Error: 500 Internal server error", 500)
    hang(agent, fault)


def approval_never(agent: Agent, _fault: Fault) -> None:
    """Ask for a tool and never hear the answer; only an interrupt or the end of stdin ends it."""
    playing(agent).ask_unanswered()


def lost_prompt(agent: Agent, _fault: Fault) -> None:
    agent.leave_now(0)


def exit_after_success(agent: Agent, fault: Fault) -> None:
    playing(agent).exit_with = int(fault.number)


def playing(agent: Agent) -> RunningTurn:
    if agent.running is None:
        raise TurnDone
    return agent.running


FIRE: Mapping[str, Callable[[Agent, Fault], None]] = {
    "crash": crash,
    "exit": leave,
    "hang": hang,
    "stop": stop,
    "mute": mute,
    "flood": flood,
    "garbage": garbage,
    "oversized": oversized,
    "stderr": stderr,
    "bad_utf8": bad_utf8,
    "cut": cut,
    "daemon": daemon,
    "limit": limit,
    "auth": auth,
    "retry": retry,
    "error_then_silence": error_then_silence,
    "approval_never": approval_never,
    "lost_prompt": lost_prompt,
    "exit_after_success": exit_after_success,
}
