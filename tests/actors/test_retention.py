from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.recording.recording import RunDirectory
from proctor.actors.recording.retention import PRUNE_INTERVAL, prune
from proctor.actors.recording.run_sizes import BATCH, FILE

SIZE = 1000


class HostEnded(BaseException):
    """The process ends in the middle of a look, as it does at the end of a short command."""


def ended_runs(root: Path, count: int) -> list[Path]:
    """The youngest last."""
    runs = list[Path]()
    for number in range(count):
        run = RunDirectory(root, "a")
        (run.path / "events.ndjson").write_bytes(b"x" * SIZE)
        when = time.time() - 10 * (count - number)
        for path in (run.path / "events.ndjson", run.path):
            os.utime(path, (when, when))
        run.close()
        runs.append(run.path)
    return runs


class Look:
    """A look for what is to go: with the calls of a function of the system that it `made`, or cut short at one of them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.made = 0

    def __call__(self, root: Path, end_at: int = -1, **bounds: int) -> list[Path]:
        self.made = 0
        with pytest.MonkeyPatch.context() as patched:
            for name in self.names:
                patched.setattr(os, name, self._counted(getattr(os, name), end_at))
            return prune(root, **bounds)

    def _counted(self, real: Any, end_at: int) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.made += 1
            if self.made == end_at:
                raise HostEnded
            return real(*args, **kwargs)

        return called


def test_commands_that_end_in_the_middle_of_a_look_prune_between_them(tmp_path: Path) -> None:
    runs = ended_runs(tmp_path, 3 * BATCH)
    old = time.time() - 1e7
    for path in (runs[0] / "events.ndjson", runs[0]):
        os.utime(path, (old, old))
    look, removed, cut_short = Look("lstat"), list[Path](), 0
    whole = len(runs) * len([*runs[0].iterdir()])
    while cut_short < 4 and not removed:
        try:
            removed = look(tmp_path, end_at=whole // 2)
        except HostEnded:
            cut_short += 1
    assert (removed, 0 < cut_short < 4) == (runs[:1], True)


def test_a_second_look_measures_no_run_again(tmp_path: Path) -> None:
    runs = ended_runs(tmp_path, 2 * BATCH)
    look = Look("lstat")
    assert look(tmp_path) == []
    first = look.made
    assert look(tmp_path) == []
    assert (first > 2 * BATCH, look.made) == (True, 0)
    assert prune(tmp_path, keep_bytes=50 * (SIZE + 200)) != []
    assert 40 < sum(run.exists() for run in runs) <= 60


def test_a_run_that_was_touched_since_is_measured_again(tmp_path: Path) -> None:
    runs = ended_runs(tmp_path, BATCH)
    assert prune(tmp_path, keep_bytes=2 * BATCH * SIZE) == []
    (runs[-1] / "notes").write_bytes(b"x" * 2 * BATCH * SIZE)
    assert set(prune(tmp_path, keep_bytes=2 * BATCH * SIZE)) == {*runs}


def test_a_run_in_use_is_measured_by_every_look(tmp_path: Path) -> None:
    ended_runs(tmp_path, BATCH - 1)
    live = RunDirectory(tmp_path, "live")
    assert prune(tmp_path) == []
    assert not (tmp_path / FILE).exists()
    live.close()
    assert prune(tmp_path) == []
    assert len((tmp_path / FILE).read_text().splitlines()) == BATCH


@pytest.mark.parametrize("content", [b"", b"\xff\n \n 1\n", b"x" * 100_000, b"a 1 2 3 4\nb c d e\n"], ids=len)
def test_a_file_of_sizes_that_makes_no_sense_is_passed_over(tmp_path: Path, content: bytes) -> None:
    runs = ended_runs(tmp_path, BATCH)
    (tmp_path / FILE).write_bytes(content)
    assert prune(tmp_path) == []
    assert set(prune(tmp_path, keep_bytes=0)) == {*runs}


def test_a_file_of_sizes_cut_short_costs_a_run_its_line_and_no_other(tmp_path: Path) -> None:
    ended_runs(tmp_path, BATCH)
    assert prune(tmp_path) == []
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-3])
    look = Look("lstat")
    assert look(tmp_path) == []
    assert 0 < look.made < 20


def test_a_link_in_place_of_the_sizes_is_not_followed(tmp_path: Path) -> None:
    root, other = tmp_path / "runs", tmp_path / "other"
    other.write_text("mine")
    ended_runs(root, BATCH)
    (root / FILE).symlink_to(other)
    assert prune(root) == []
    assert other.read_text() == "mine"


def test_the_file_of_sizes_is_written_anew_when_most_of_its_runs_are_gone(tmp_path: Path) -> None:
    ended_runs(tmp_path, 2 * BATCH)
    assert prune(tmp_path) == []
    assert len(prune(tmp_path, keep_bytes=10 * (SIZE + 200))) > BATCH
    assert prune(tmp_path) == []
    assert len((tmp_path / FILE).read_text().splitlines()) < 20


@pytest.mark.parametrize("name", ["unlink", "rmdir"])
def test_a_removal_that_is_cut_short_at_any_call_is_finished_by_the_next_look(
    tmp_path: Path, name: str
) -> None:
    look, number = Look(name), 1
    later = time.time() + 2 * PRUNE_INTERVAL
    while True:
        (run,) = ended_runs(tmp_path, 1)
        try:
            look(tmp_path, end_at=number, keep_bytes=0)
        except HostEnded:
            prune(tmp_path, keep_bytes=0, now=later)
            assert not run.exists(), (number, [*run.iterdir()])
            number += 1
        else:
            break
    assert number > 1
