"""`proctor health`: which command lines are here and work."""

from __future__ import annotations

import json as jsonfile
from collections.abc import Sequence
from functools import partial

import trio

from proctor.actors.operations.health import ADAPTERS, AdapterChecks, CheckResult, Health
from proctor.cli.codes import FAILED, OK, STDOUT_GONE
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import WHOLE, one_line


def health_command(names: Sequence[str], *, json: bool) -> int:
    """Look, tell, and return the exit status: 1 when one of them does not work."""
    return trio.run(_main, names, json)


async def _main(names: Sequence[str], json: bool) -> int:
    screen = Output(2)
    work = partial(_shown, names, json, screen)
    return await interruptible(work, told=screen.say, beside=trio.sleep_forever)


async def _shown(names: Sequence[str], json: bool, screen: Output, interrupts: Interrupts) -> int:
    try:
        with interrupts.scope:
            checks = AdapterChecks({name: ADAPTERS[name] for name in dict.fromkeys(names) or ADAPTERS})
            health = await checks.run()
            text = jsonfile.dumps(facts(health)) if json else "\n".join(map(told, health.results))
            await Output(1).write(f"{text}\n".encode("utf-8", "replace"))
            return OK if health.grade == "ok" else FAILED
    except BrokenPipeError:
        return STDOUT_GONE
    except OutputFailed as error:
        await screen.say(str(error))
    return FAILED  # that, or interrupted: the signal has its own status


def told(finding: CheckResult) -> str:
    """A finding on one line."""
    said = f"{finding.version} at {finding.path}" if finding.ok else one_line(finding.why or "", WHOLE)
    return f"{'ok' if finding.ok else 'down':4}  {finding.adapter:9} {said}"


def facts(health: Health) -> dict[str, object]:
    """For a program."""
    adapters = {
        found.adapter: {
            "ok": found.ok,
            "version": found.version or None,
            "path": None if found.path is None else str(found.path),
            "why": found.why,
        }
        for found in health.results
    }
    return {"grade": health.grade, "missing": [*health.missing], "adapters": adapters}
