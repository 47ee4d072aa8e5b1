from __future__ import annotations

import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.recording.retention import prune, remove_old_files, untagged_runs
from tests.runtime.belongings import descriptors


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_an_incarnation_folder_has_the_format_of_a_transcript(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "reviewer")
    recording = run.open_incarnation()
    recording.begin(cli="claude", argv=("claude", "-p"))
    recording.stdin(b'{"type":"user"}\n')
    recording.stdout(b'{"a":1}\n{"b":2}\n', 0)
    recording.stdout(b'{"c":3}\n', 2)
    recording.stderr(b"oh\n")
    recording.close(stdout_lines=3)
    run.close()
    folder = run.path / "1"
    assert (folder / "stdout.ndjson").read_bytes().count(b"\n") == 3
    assert (folder / "stdin.ndjson").read_bytes() == b'{"type":"user"}\n'
    assert (folder / "stderr.txt").read_bytes() == b"oh\n"
    meta = json.loads((folder / "meta.json").read_bytes())
    assert meta["argv"] == ["claude", "-p"]
    assert len(meta["line_times_s"]) == 3
    assert len(meta["stdin_times_s"]) == 1


async def test_nobody_else_may_look_into_a_run_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "a")
    run.open_incarnation().close()
    assert [mode(p) for p in (run.path, run.path / "1", run.path / "1" / "stdout.ndjson")] == [
        0o700,
        0o700,
        0o600,
    ]
    run.close()


async def test_a_temporary_run_directory_goes_with_the_run() -> None:
    run = RunDirectory(None, "a/../b c")
    run.open_incarnation().close()
    assert run.path.name.startswith("proctor-a_.._b_c-")
    assert run.path.is_dir()
    run.close()
    run.close()
    assert not run.path.exists()


async def test_what_processes_have_for_themselves_is_temporary_also_when_the_recording_is_kept(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path, "a")
    (run.scratch / "tmp").mkdir()
    assert not run.scratch.is_relative_to(run.path)
    assert mode(run.scratch) == 0o700
    run.close()
    assert run.path.exists()
    assert not run.scratch.exists()


async def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(RecordingFailed, match="cannot write the run directory '/proc/nowhere'"):
        RunDirectory(Path("/proc/nowhere"), "a")


def aged(root: Path, name: str, seconds: float, size: int) -> RunDirectory:
    run = RunDirectory(root, name)
    (run.path / "events.ndjson").write_bytes(b"x" * size)
    past = os.stat(run.path).st_mtime - seconds
    for path in (run.path / "events.ndjson", run.path):
        os.utime(path, (past, past))
    return run


def test_a_run_that_lasted_longer_than_recordings_are_kept_is_not_removed_when_it_ends(
    tmp_path: Path,
) -> None:
    run = aged(tmp_path, "a", 1e7, 10)
    (run.path / "events.ndjson").write_bytes(b"news")
    run.close()
    assert prune(tmp_path) == []


def test_pruning_removes_the_oldest_until_both_bounds_hold(tmp_path: Path) -> None:
    runs = [aged(tmp_path, f"r{n}", n * 100, 1000) for n in range(5)]
    for run in runs:
        run.close()
    assert set(prune(tmp_path, keep_bytes=2500, keep_seconds=1e9)) == {r.path for r in runs[2:]}
    assert set(prune(tmp_path, keep_bytes=10**9, keep_seconds=50)) == {runs[1].path}
    assert runs[0].path.exists()


def test_an_agent_that_records_a_lot_does_not_cost_the_others_their_past(tmp_path: Path) -> None:
    quiet = aged(tmp_path, "quiet", 500, 1000)
    loud = [aged(tmp_path, "loud-one", n * 100, 1000) for n in range(4)]
    for run in (quiet, *loud):
        run.close()
    assert prune(tmp_path, keep_bytes=3500, keep_seconds=1e9) == [loud[3].path, loud[2].path]


def test_pruning_leaves_what_is_in_use_and_what_is_not_ours(tmp_path: Path) -> None:
    live = aged(tmp_path, "live", 10**6, 1000)
    (tmp_path / "strangers").mkdir()
    assert prune(tmp_path, keep_bytes=0, keep_seconds=0) == []
    assert live.path.exists()
    live.close()
    assert prune(tmp_path, keep_bytes=0, keep_seconds=0) == [live.path]
    assert (tmp_path / "strangers").exists()


@pytest.mark.parametrize("name", ["project", "20260101-000000-agent-abcdefgh"])
def test_a_folder_with_a_lock_that_we_did_not_make_is_never_removed(tmp_path: Path, name: str) -> None:
    other = tmp_path / name
    other.mkdir()
    (other / "lock").touch()
    (other / "thesis.txt").write_text("years of work")
    os.utime(other, (0, 0))
    assert prune(tmp_path, keep_bytes=0, keep_seconds=0) == []
    assert (other / "thesis.txt").exists()
    assert [path.name for path in untagged_runs(tmp_path)] == ([name] if name != "project" else [])


def test_a_run_directory_that_was_renamed_or_copied_is_kept(tmp_path: Path) -> None:
    run = aged(tmp_path, "a", 1e7, 10)
    run.close()
    shutil.copytree(run.path, tmp_path / "20260101-000000-copy-abcdefgh")
    run.path.rename(tmp_path / "the one with the bug")
    assert prune(tmp_path, keep_bytes=0, keep_seconds=0) == []
    assert len([*tmp_path.iterdir()]) == 2


def test_a_link_to_a_run_directory_is_not_followed(tmp_path: Path) -> None:
    run = aged(tmp_path / "elsewhere", "a", 1e7, 10)
    run.close()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / run.path.name).symlink_to(run.path)
    assert prune(tmp_path / "runs", keep_bytes=0, keep_seconds=0) == []
    assert run.path.is_dir()


def test_a_run_directory_is_locked_from_the_moment_that_its_lock_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[list[Path]] = []
    looks = [0]

    def seen_by_another(call: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            looks[0] += 1
            if looks[0] == 1:  # not by what the look itself calls
                removed.append(prune(tmp_path, keep_bytes=-1, keep_seconds=1000))
            looks[0] -= 1
            return result

        return called

    with monkeypatch.context() as patched:
        for name in ("mkdir", "open", "write", "rename"):
            patched.setattr(os, name, seen_by_another(getattr(os, name)))
        run = RunDirectory(tmp_path, "a")
    assert len(removed) > 4
    assert not any(removed)
    assert run.path.is_dir()
    run.close()


def test_a_clock_that_runs_ahead_removes_nothing_that_a_host_has_seen_made(tmp_path: Path) -> None:
    run = aged(tmp_path, "a", 100, 10)
    run.close()
    assert prune(tmp_path, keep_seconds=1000, now=time.time()) == []
    assert prune(tmp_path, keep_seconds=1000, now=time.time() + 1e4) == [run.path]


async def test_a_recording_times_each_line_by_the_read_that_ended_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    run = RunDirectory(tmp_path, "a")
    recording = run.open_incarnation()
    for data, line in ((b"1\n2\n3", 0), (b"3", 2), (b"\n4\n", 2), (b"5", 4)):
        recording.stdout(data, line)
        await trio.sleep(1.25)
    recording.close(stdout_lines=5)
    assert json.loads((recording.path / "meta.json").read_bytes())["line_times_s"] == [0, 0, 2.5, 2.5, 3.75]
    run.close()


async def test_a_recording_of_more_lines_than_it_times_has_no_line_times(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "a")
    recording = run.open_incarnation()
    recording.stdout(b"{}\n", 0)
    recording.close(stdout_lines=50_000)
    assert json.loads((recording.path / "meta.json").read_bytes())["line_times_s"] == []
    await trio.lowlevel.checkpoint()
    run.close()


def test_only_files_that_nobody_wrote_for_long_are_forgotten(tmp_path: Path) -> None:
    for name, age in (("old", 100.0), ("new", 0.0)):
        path = tmp_path / name
        path.write_text("")
        os.utime(path, (path.stat().st_mtime - age, path.stat().st_mtime - age))
    remove_old_files(tmp_path, keep_seconds=50)
    remove_old_files(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


async def test_what_is_written_after_the_end_of_a_recording_opens_no_file_again(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "a")
    recording = directory.open_incarnation()
    recording.stdin(b"before\n")
    recording.close()
    before = descriptors()
    for write in (recording.stdin, recording.stderr):
        write(b"after\n")
    recording.stdout(b"after\n", 1)
    assert descriptors() == before
    assert (recording.path / "stdin.ndjson").read_bytes() == b"before\n"
    directory.close()
