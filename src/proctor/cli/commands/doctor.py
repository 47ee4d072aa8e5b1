"""`proctor doctor`: checks whether this machine can run agents.

Each check tries the thing itself where possible, and gives one line: ok, warn (works with limits) or fail.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from typing import Literal

import attrs
import trio

from proctor.actors.errors import RecordingFailed
from proctor.actors.operations.health import ADAPTERS, Adapter, AdapterChecks, CheckResult
from proctor.actors.plan.discovery import Product
from proctor.actors.plan.environment import SECRETS
from proctor.actors.process.orphans import describe_sweep, hosts_folder
from proctor.actors.recording.retention import untagged_runs
from proctor.cli.cleanup_proof import ProofFailed, prove_cleanup
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.parameters import DoctorOptions
from proctor.cli.recordings import state_directory
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import one_line
from proctor.runtime.processes import (
    Command,
    ProcessError,
    find_marked,
    last_pid,
    marker_of,
    open_ledger,
    open_process,
    pids,
)

Grade = Literal["ok", "warn", "fail"]
FEW_FILES = 1024
"""The least number of descriptors for a fleet: an agent needs about ten."""
NEEDED = (3, 11)
_WIDTH = 1000
_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(60)
"""


@attrs.frozen
class Check:
    """The result of one check. `text` is the finding, `advice` what to do, empty when nothing."""

    name: str
    grade: Grade
    text: str
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.text}; {self.advice}" if self.advice else self.text
        return f"{self.grade:4}  {self.name:11}  {one_line(text, _WIDTH)}"


def doctor_command(options: DoctorOptions) -> int:
    """Run the checks or the proof; the exit status is 1 when something fails."""
    return run_report(partial(_prove if options.prove_cleanup else _look, options), ProofFailed)


async def _prove(options: DoctorOptions, out: Output) -> int:
    proof = await prove_cleanup(options.children, options.seconds)
    await _write(out, proof.facts() if options.output == "json" else proof.lines())
    return OK if proof.holds else FAILED


async def _look(options: DoctorOptions, out: Output) -> int:
    checks = list[Check]()
    async for check in all_checks():
        checks.append(check)
        if options.output != "json":
            await _write(out, [str(check)])
    good = all(check.grade != "fail" for check in checks)
    if options.output == "json":
        await _write(out, {"ok": good, "checks": [attrs.asdict(check) for check in checks]})
    return OK if good else FAILED


async def _write(out: Output, result: Mapping[str, object] | Iterable[str]) -> None:
    lines = [json.dumps(result)] if isinstance(result, Mapping) else result
    await out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


async def all_checks() -> AsyncGenerator[Check]:
    """Run every check, one after another."""
    yield check_python(sys.version_info[:3])
    yield check_platform(platform.system(), platform.release())
    yield check_pidfd()
    yield check_proc()
    for look in (check_guard, check_subreaper, check_state, check_leftovers):
        yield await look()
    yield check_recordings()
    yield check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for check in await check_products():
        yield check
    yield check_credentials(os.environ)


def check_python(number: tuple[int, ...]) -> Check:
    """Check the version of the interpreter."""
    text = f"{'.'.join(map(str, number))} at {sys.executable}"
    if number < NEEDED:
        return Check("python", "fail", text, f"proctor needs {'.'.join(map(str, NEEDED))} or newer")
    return Check("python", "ok", text)


def check_platform(system: str, release: str) -> Check:
    """Check the operating system."""
    if system != "Linux":
        advice = "no guards on this system: processes that leave their group survive, and nothing is swept"
        return Check("platform", "warn", f"{system} {release}", advice)
    return Check("platform", "ok", f"{system} {release} {platform.machine()}")


def check_pidfd() -> Check:
    """Check that a process can be watched by a descriptor."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        advice = "guards need Linux 5.3 or newer, and a sandbox that allows pidfd_open"
        return Check("pidfd", "fail" if sys.platform == "linux" else "warn", str(error), advice)
    return Check("pidfd", "ok", "processes can be watched and signalled by descriptor")


def check_proc() -> Check:
    """Check that /proc shows processes, their start times and their environments."""
    try:
        last_pid()
        seen = len(pids())
        marker_of(os.getpid())
    except OSError as error:
        advice = "mount /proc; without it, processes that were left behind are not found"
        return Check("proc", "fail" if sys.platform == "linux" else "warn", str(error), advice)
    return Check("proc", "ok", f"readable, shows {seen} processes")


async def check_guard() -> Check:
    """Measure the start of a program below a guard."""
    began = trio.current_time()
    try:
        async with open_process(_python(""), guard=True) as process:
            # taken before the wait: the start is measured, not the run of an empty program
            took = trio.current_time() - began
            await process.wait()
    except ProcessError as error:
        return Check("guard", "fail", str(error), "agents cannot be started")
    grade: Grade = "ok" if process.guarded else "warn"
    return Check(
        "guard",
        grade,
        f"a program starts {'with' if process.guarded else 'without'} a guard in {took * 1e3:.0f} ms",
    )


async def check_subreaper() -> Check:
    """Check that a daemon is killed with the program that started it."""
    marker = f"doctor-{os.getpid()}"
    try:
        async with open_process(_python(_DAEMON), guard=True, marker=marker) as process:
            await process.wait()
        # after the block: by then the guard has ended, and what still carries the marker has escaped it
        left = find_marked({marker})
    except (ProcessError, OSError) as error:
        return Check("subreaper", "fail" if sys.platform == "linux" else "warn", str(error))
    for orphan in left:
        # the check must not itself leave the daemon for the 60 seconds that it sleeps
        os.kill(orphan.pid, signal.SIGKILL)
    if left:
        return Check(
            "subreaper", "fail", f"a daemon survives: {left[0]}", "allow guards to become a subreaper"
        )
    return Check("subreaper", "ok", "a daemon is killed with the program that started it")


async def check_state() -> Check:
    """Check that the state folder can be written."""
    try:
        folder = hosts_folder()
        async with open_ledger(folder):
            pass
    except OSError as error:
        advice = "set XDG_STATE_HOME to a folder that you can write; without one, runs need --no-record and nothing is swept"
        return Check("state", "fail", str(error), advice)
    return Check("state", "ok", f"{folder.parent} can be written")


async def check_leftovers() -> Check:
    """Kill the processes and remove the temporary folders that dead hosts have left."""
    try:
        async with open_ledger(hosts_folder()) as ledger:
            swept = await ledger.sweep()
    except OSError as error:
        return Check("leftovers", "warn", f"cannot look for them: {error.strerror or error}")
    text = "; ".join(describe_sweep(swept)) or "earlier runs have left nothing"
    if swept.left or swept.folders_left or not swept.sure:
        return Check("leftovers", "warn", text, "remove what is named; the next start tries again")
    return Check("leftovers", "ok", text)


def check_recordings() -> Check:
    """Look for recordings that are never removed, because they carry no tag."""
    try:
        root = state_directory()
        untagged = untagged_runs(root)
    except RecordingFailed as error:
        return Check("recordings", "fail", str(error))
    except OSError as error:
        return Check("recordings", "warn", f"cannot look for them: {error}")
    if untagged:
        advice = f"recordings without a tag (older versions) are not removed automatically: check {root} and remove them"
        return Check("recordings", "warn", f"{len(untagged)} without a tag in {root}", advice)
    return Check("recordings", "ok", f"kept in {root}")


def check_files(limit: int) -> Check:
    """Check the limit of open files; -1 is no limit."""
    text = "no limit" if limit == resource.RLIM_INFINITY else f"{limit} may be open at a time"
    if 0 <= limit < FEW_FILES:
        return Check(
            "files", "warn", text, f"an agent needs about ten; set ulimit -n {FEW_FILES} or more for a fleet"
        )
    return Check("files", "ok", text)


async def check_products(adapters: Mapping[str, Adapter] = ADAPTERS) -> list[Check]:
    """Check the program of every kind of agent, as `proctor health` does."""
    results = (await AdapterChecks(adapters).run()).results
    return [_check_of(result, adapters[result.adapter].product) for result in results]


def _check_of(result: CheckResult, product: Product) -> Check:
    if result.why is not None:
        return Check(product.program, "fail" if result.installed else "warn", result.why)
    return Check(product.program, "ok", f"{product.name} {result.version} at {result.path}")


def check_credentials(environ: Mapping[str, str]) -> Check:
    """List the names of keys and endpoints in the environment."""
    names = [name for name in SECRETS if name in environ]
    if not names:
        return Check("credentials", "ok", "none in the environment; agents use their own login")
    advice = f"agents do not get them unless they are named, as in --env {names[0]}"
    return Check("credentials", "ok", f"set: {', '.join(names)}", advice)


def _python(program: str) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", program), os.environ, stdin="null", stdout="null")
