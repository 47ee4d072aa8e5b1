from __future__ import annotations

from pathlib import Path

from tests.chaos.bench_storm import storm
from tests.real.conftest import Cli, newest_claude


@newest_claude
async def test_a_batch_in_a_storm_of_refusals_loses_nothing_and_pays_for_nothing_twice(
    claude_cli: Cli, tmp_path: Path
) -> None:
    report = await storm(tmp_path, claude_cli.path, tasks=5, limit=2, seed=1, closed=1.0)
    assert [*report.faults()] == []
    assert report.storm.answered.keys() == {f"Do task {n}." for n in range(5)}
    assert report.storm.refused + report.storm.limited > 0
