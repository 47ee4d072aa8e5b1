"""A host that runs out of descriptors: `python -m tests.actors.without_descriptors SCRIPT` prints what it saw."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import trio

import proctor
from proctor.runtime.events import ChildRestarting

LIMIT = 128
RESTARTS = 3


def taken() -> list[int]:
    """All descriptors that may still be had."""
    held = list[int]()
    while True:
        try:
            held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            return held


async def main(script: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    env = {"CLAUDE_CONFIG_DIR": str(script.parent / "state")}
    specs = [proctor.scripted(name, script, env=env, shutdown=3) for name in "ab"]
    async with proctor.open_supervisor(specs, intensity=1, period=60) as sup:
        agents = [sup.agent(name) for name in "ab"]
        for agent in agents:
            await agent.ask("one")
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        with sup.events(kinds=("child_restarting",)) as events:
            held = taken()
            os.kill((await agents[0].status()).pid or 0, signal.SIGKILL)
            restarts = [await anext(events) for _ in range(1 + RESTARTS)]
        seen["restarts"] = [str(r.reason) for r in restarts if isinstance(r, ChildRestarting)]
        seen["status"] = (await agents[0].status()).summary
        seen["neighbour"] = (await agents[1].ask("two")).text
        for descriptor in held:
            os.close(descriptor)
        seen["again"] = (await agents[0].ask("three")).text
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(trio.run(main, Path(sys.argv[1]))))
