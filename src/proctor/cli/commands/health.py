"""`proctor health`: checks which command lines are installed and work."""

from __future__ import annotations

import json as jsonfile
from collections.abc import Sequence
from functools import partial

from proctor.actors.operations.health import ADAPTERS, AdapterChecks, CheckResult, Health
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import WHOLE, one_line


def health_command(names: Sequence[str], *, json: bool) -> int:
    """Check the command lines; the exit status is 1 when one does not work."""
    return run_report(partial(_report, names, json))


async def _report(names: Sequence[str], json: bool, out: Output) -> int:
    health = await AdapterChecks({name: ADAPTERS[name] for name in dict.fromkeys(names) or ADAPTERS}).run()
    text = jsonfile.dumps(facts(health)) if json else "\n".join(map(format_finding, health.results))
    await out.write(f"{text}\n".encode("utf-8", "replace"))
    return OK if health.grade == "ok" else FAILED


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
