from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.proctor.command import proctor
from tests.runtime.programs import installed


@pytest.mark.covers("R182")
def test_it_says_of_each_whether_it_works_and_so_does_the_status(home: Path, tmp_path: Path) -> None:
    claude = installed(tmp_path / "claude", "echo 2.1.9")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    good = proctor("health", "claude", home=home, env=env)
    assert (good.status, good.out, good.err) == (0, f"ok    claude    2.1.9 at {claude}\n", "")
    bad = proctor("health", "claude", "gemini", "-o", "json", home=home, env=env)
    facts = json.loads(bad.out)
    assert (bad.status, facts["grade"], facts["missing"]) == (1, "degraded", ["gemini"])
    assert facts["adapters"]["claude"] == {"ok": True, "version": "2.1.9", "path": str(claude), "why": None}
    assert "Gemini CLI is not installed" in facts["adapters"]["gemini"]["why"]
