from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actors.scripted.launch import SCRIPTED_WIRES
from tests.chaos.storm import DEEDS, Storm, Weather


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_fleet_in_a_storm_gives_each_request_one_end_and_leaves_nothing_behind(
    tmp_path: Path, seed: int
) -> None:
    sessions = tuple(name for name, wire in SCRIPTED_WIRES.items() if wire.mode == "session")
    weather = Weather(agents=12, seconds=2.5, deeds=len(DEEDS) + 1, seed=seed, dialects=sessions)
    report = await Storm(weather, tmp_path).run()
    assert report.faults == []
    assert report.ends.total() == report.requests
    assert report.ends["ok"] > 0
    assert report.deeds.total() > len(DEEDS)
