from __future__ import annotations

from pathlib import Path

from tests.chaos.weekend import Choice, weekend


async def test_a_fleet_whose_host_is_killed_accounts_for_every_request_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    report = await weekend(tmp_path, Choice(agents=9, kills=2, real=0, seed=1))
    assert report.faults == []
    assert report.answered > 5
    assert report.deeds["reload"] == 1
    assert report.deeds["question answered"] >= 5
