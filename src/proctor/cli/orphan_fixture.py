"""A runtime to be killed by `cleanup_proof`: `python -m proctor.cli.orphan_fixture FOLDER CHILDREN`.

Each child is a guarded program; every second one starts a process in a new session and another one whose parent ends at
once. Writes `ready` to stdout when all of them run. Ends when its stdin is closed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from proctor.runtime import ChildSpec, open_supervisor, run
from proctor.runtime.processes import Command, Step, open_ledger, open_process

PROGRAM = """
import os, sys, time
def away(orphaned):
    child = os.fork()
    if child == 0:
        os.setsid()
        if orphaned and os.fork():
            os._exit(0)
        time.sleep(600)
        os._exit(0)
    if orphaned:
        os.waitpid(child, 0)
if sys.argv[1] == "family":
    away(False)
    away(True)
print("ready", flush=True)
time.sleep(600)
"""
SHARE = 2


async def child(word: str, *, task_status: trio.TaskStatus[None]) -> None:
    """Run the program, and report readiness with it."""
    command = Command((sys.executable, "-I", "-S", "-c", PROGRAM, word), os.environ)
    async with open_process(command, guard=True, marker=word, ladder=(Step("kill"),)) as process:
        # the line "ready" comes after the forks, so all descendants exist when the child counts as started
        await process.receive()
        task_status.started()
        await process.wait()


async def main(folder: str, children: int) -> None:
    """Start all children, write `ready`, and wait for the end of stdin."""
    specs = [
        ChildSpec(f"child-{n}", child, ("alone" if n % SHARE else "family",), restart="temporary")
        for n in range(children)
    ]
    async with open_ledger(Path(folder)), open_supervisor(specs):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        # the end of stdin is the end of the one who proves: this runtime must not outlive it
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    run(main, sys.argv[1], int(sys.argv[2]))
