from __future__ import annotations

import time
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.actors.operations.health import Adapter, AdapterChecks, CheckResult, Health, adapters_of
from proctor.actors.plan.discovery import CLAUDE_CODE, CODEX_CLI
from proctor.actors.plan.plan import claude_plan, codex_plan, scripted_plan
from tests.actors.far_end import HELLO, write_script
from tests.runtime.programs import installed

TWO = {"claude": Adapter(CLAUDE_CODE), "codex": Adapter(CODEX_CLI)}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    for name in TWO:
        installed(tmp_path / name, f"echo x >> {tmp_path}/asked; echo {name} 1.2.3")
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}


def asked(folder: Path) -> int:
    return len((folder / "asked").read_text().splitlines())


@pytest.mark.covers("R182")
async def test_one_that_is_removed_while_we_run_is_missed_by_name(
    environ: dict[str, str], tmp_path: Path
) -> None:
    checks = AdapterChecks(TWO, max_age=0, environ=environ)
    well = await checks.run()
    assert (well.grade, well.missing) == ("ok", ())
    assert [found.version for found in well.results] == ["1.2.3", "1.2.3"]
    assert [found.path for found in well.results] == [tmp_path / "claude", tmp_path / "codex"]
    (tmp_path / "codex").unlink()
    ill = await checks.run()
    assert (ill.grade, ill.missing) == ("degraded", ("codex",))
    assert "Codex is not installed" in (ill.results[1].why or "")
    installed(tmp_path / "claude", "echo it is broken >&2; exit 3")
    dead = await checks.run()
    assert (dead.grade, dead.missing) == ("down", ("claude", "codex"))
    assert "it is broken" in (dead.results[0].why or "")
    installed(tmp_path / "codex", "echo 2.0.0")
    assert (await checks.run()).missing == ("claude",)


async def test_an_answer_is_given_again_for_a_while_to_whoever_asks(
    environ: dict[str, str], tmp_path: Path
) -> None:
    checks = AdapterChecks(TWO, environ=environ)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(checks.run)
    (tmp_path / "codex").unlink()
    assert (await checks.run()).grade == "ok"
    assert await checks.by_name()["codex"]() is None
    assert asked(tmp_path) == 2


async def test_a_program_that_does_not_answer_is_killed_in_time(
    environ: dict[str, str], tmp_path: Path
) -> None:
    installed(tmp_path / "codex", "trap '' TERM; exec sleep 600")
    began = time.monotonic()
    found = await AdapterChecks(TWO, timeout=0.3, environ=environ).check("codex")
    assert (found.why, found.path) == ("no answer within 0.3 s", tmp_path / "codex")
    assert time.monotonic() - began < 4  # a polite end alone would take five


async def test_whoever_leaves_while_it_is_looked_harms_nobody(
    environ: dict[str, str], tmp_path: Path
) -> None:
    installed(tmp_path / "codex", "sleep 0.3; echo 3.0.0")
    checks = AdapterChecks(TWO, environ=environ)
    with trio.move_on_after(0.1) as left:
        await checks.check("codex")
    assert left.cancelled_caught
    assert (await checks.check("codex")).version == "3.0.0"


async def test_a_file_system_that_does_not_answer_is_left_to_its_thread(
    environ: dict[str, str], tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Slow(dict[str, str]):
        def get(self, *words: str) -> str:  # type: ignore[override]
            time.sleep(0.5)
            return ""

    found = await AdapterChecks(TWO, timeout=0.1, environ=Slow(environ)).check("claude")
    assert (found.why, found.path) == ("no answer within 0.1 s", None)


@pytest.mark.parametrize(
    ("wells", "grade"), [((), "ok"), ((True, True), "ok"), ((True, False), "degraded"), ((False,), "down")]
)
def test_the_grade_is_that_of_all(wells: tuple[bool, ...], grade: str) -> None:
    found = (CheckResult(adapter=str(n), why=None if well else "x") for n, well in enumerate(wells))
    assert Health(tuple(found)).grade == grade


def test_a_fleet_needs_each_of_its_command_lines_once(tmp_path: Path) -> None:
    claude = claude_plan("a", {})
    plans = {
        "a": claude,
        "b": attrs.evolve(claude, name="b"),
        "c": claude_plan("c", {"executable": tmp_path / "mine"}),
        "d": codex_plan("d", {}),
        "e": scripted_plan("e", write_script(tmp_path, HELLO), {}),
    }
    assert adapters_of(plans) == {
        "claude": Adapter(CLAUDE_CODE),
        str(tmp_path / "mine"): Adapter(CLAUDE_CODE, tmp_path / "mine"),
        "codex": Adapter(CODEX_CLI),
    }
