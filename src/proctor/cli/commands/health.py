"""`proctor health`: checks which command lines are installed and work."""

from __future__ import annotations

import json as jsonfile
from collections.abc import Sequence
from functools import partial

import trio

from proctor.actors.operations.health import ADAPTERS, AdapterChecks, CheckResult, Health
from proctor.cli.exit_status import FAILED, OK, STDOUT_GONE
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import WHOLE, one_line


def health_command(names: Sequence[str], *, json: bool) -> int:
    """Check the command lines; the exit status is 1 when one does not work."""
    return trio.run(_main, names, json)


async def _main(names: Sequence[str], json: bool) -> int:
    screen = Output(2)
    work = partial(_shown, names, json, screen)
    return await interruptible(work, notify=screen.say, background=trio.sleep_forever)


async def _shown(names: Sequence[str], json: bool, screen: Output, interrupts: Interrupts) -> int:
    try:
        with interrupts.scope:
            checks = AdapterChecks({name: ADAPTERS[name] for name in dict.fromkeys(names) or ADAPTERS})
            health = await checks.run()
            text = jsonfile.dumps(facts(health)) if json else "\n".join(map(format_finding, health.results))
            await Output(1).write(f"{text}\n".encode("utf-8", "replace"))
            return OK if health.grade == "ok" else FAILED
    except BrokenPipeError:
        return STDOUT_GONE
    except OutputFailed as error:
        await screen.say(str(error))
    return FAILED  # or interrupted: then the status of the signal counts


def format_finding(finding: CheckResult) -> str:
    """Format a finding as one line."""
    text = f"{finding.version} at {finding.path}" if finding.ok else one_line(finding.why or "", WHOLE)
    return f"{'ok' if finding.ok else 'down':4}  {finding.adapter:9} {text}"


def facts(health: Health) -> dict[str, object]:
    """The result as JSON data."""
    adapters = {
        finding.adapter: {
            "ok": finding.ok,
            "version": finding.version or None,
            "path": None if finding.path is None else str(finding.path),
            "why": finding.why,
        }
        for finding in health.results
    }
    return {"grade": health.grade, "missing": [*health.missing], "adapters": adapters}
