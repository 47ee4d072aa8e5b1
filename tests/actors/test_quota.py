"""What an agent that is held for long has on disk: its quota, what goes first, and who is told."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.agent.request import Request
from proctor.actors.agent.turn import Turn
from proctor.actors.errors import BadOption, MaybeExecuted
from proctor.actors.gateways.http.streams import EncodedLog
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import Recording, RunDirectory
from proctor.actors.recording.retention import prune_regularly
from proctor.actors.recording.segments import read_raw_frame
from proctor.actors.replay import read_recording
from proctor.actors.scripted.script import read_stream
from proctor.protocols.vocabulary import Notice, Text, TextDelta
from proctor.runtime.processes.ledger import open_ledger

HOUR = 3600.0
LIMIT = 2**20


def text(number: int, size: int = 1000) -> Text:
    return Text(number, "1.1", f"{number}".ljust(size, "."))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def filled(path: Path, count: int, limit: int = 100_000) -> EventLog:
    log = EventLog(path, window=10, limit=limit)
    for number in range(count):
        log.append([text(number)])
    log.close()
    return log


async def test_an_event_log_holds_no_more_than_its_limit_and_the_newest(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.ndjson", window=10, limit=100_000)
    for number in range(2000):
        log.append([text(number)])
        assert size_of(tmp_path) <= 100_000
    assert log.statistics().held == size_of(tmp_path) > 80_000
    assert (tmp_path / "events.ndjson").is_file()
    log.close()
    first = log.first
    assert [event async for event in log.cursor(first)] == [text(n) for n in range(first, 2000)]
    log.release()


async def test_a_reader_behind_what_was_removed_is_told_once_and_goes_on(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.ndjson", 1000)
    cursor = log.cursor(5)
    gap, *rest = [event async for event in cursor]
    assert isinstance(gap, Notice)
    assert (gap.code, gap.data) == ("events_dropped", {"since": 5, "next": log.first})
    assert rest == [text(n) for n in range(log.first, 1000)]
    assert cursor.position == 1000
    log.release()


async def test_the_position_of_the_notice_is_the_one_before_the_next_event(tmp_path: Path) -> None:
    log = filled(tmp_path / "events.ndjson", 1000)
    cursor = log.cursor(0)
    await anext(cursor)
    assert cursor.position == log.first
    data, position = EncodedLog(log).after(0)
    assert data.startswith(b"id: %d\nevent: notice\ndata: " % (log.first - 1))
    assert b"events_dropped" in data
    while position < log.end:
        more, position = EncodedLog(log).after(position)
        data += more
    assert data.count(b"\nevent: text\n") == 1000 - log.first
    log.release()


async def test_a_log_that_a_cleaner_removed_under_us_goes_on_and_a_late_reader_is_told(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path / "events.ndjson", window=10, limit=100_000)
    for number in range(60):
        log.append([text(number)])
    shutil.rmtree(tmp_path)
    for number in range(60, 75):
        log.append([text(number)])
    log.close()
    gap, *rest = [event async for event in log.cursor(0)]
    assert isinstance(gap, Notice)
    assert gap.code == "events_dropped"
    assert rest == [text(n) for n in range(75 - len(rest), 75)]
    assert len(rest) >= 15
    log.release()


async def test_a_turn_whose_end_may_have_been_removed_does_not_wait_for_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.ndjson", window=10, limit=100_000)
    pending = Request("ticket", "x")
    turn = Turn("a", pending, log, 0, repeats=False, withdraw=lambda: None, reason=lambda: None)
    log.append([Notice(-1, None, "sent", "", {"ticket": "ticket", "prompt": "p"})])
    for number in range(1000):
        log.append([text(number)])
    with pytest.raises(MaybeExecuted, match="its end may be lost: the events 0 to"):
        await turn.finish()
    log.release()


async def test_a_line_is_found_in_whatever_segment_it_is(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "a", limit=LIMIT)
    recording = run.open_incarnation()
    for number in range(900):
        recording.stdout(b"%d%s\n" % (number, b"." * 1000), number)
    log = run.path / "events.ndjson"
    held = [number for number in range(900) if _has(log, number)]
    assert held == [*range(held[0], 900)]
    assert 300 < held[0] < 500
    recording.close()
    run.close()


def _has(log: Path, number: int) -> bool:
    try:
        return read_raw_frame(log, TextDelta(number, "1.1", "")).startswith(b"%d." % number)
    except LookupError:
        return False


async def test_the_oldest_incarnation_goes_first_then_the_oldest_of_the_one_that_runs(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "a", limit=LIMIT)
    for _ in range(3):
        recording = run.open_incarnation()
        recording.stdout(b"x" * 199_999 + b"\n", 0)
        recording.close(stdout_lines=1)
    assert {path.name for path in run.path.iterdir() if path.is_dir()} == {"2", "3"}
    recording = run.open_incarnation()
    for number in range(100):
        recording.stderr(b"y" * 9_999 + b"\n")
        recording.stdout(b"z" * 9_999 + b"\n", number)
    recording.close(stdout_lines=100)
    assert {path.name for path in run.path.iterdir() if path.is_dir()} == {"4"}
    assert size_of(run.path) <= LIMIT // 2 + 20_000
    run.close()


async def test_an_agent_that_restarts_all_the_time_is_bounded_too(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "a", limit=LIMIT)
    for _ in range(200):
        run.open_incarnation().close()
    assert len([path for path in run.path.iterdir() if path.is_dir()]) <= LIMIT // 2 // 16_384 + 1
    run.close()


@pytest.mark.parametrize("lost", [slice(0), slice(1), slice(1, 2), slice(None)])
async def test_a_recording_in_parts_is_played_only_when_none_of_them_was_removed(
    lost: slice, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path, "a", limit=LIMIT)
    recording = run.open_incarnation()
    for number in range(30):
        recording.stdout(b'{"n":"' + b"z" * 9_990 + b'"}\n', number)
    recording.stdin(b'{"type":"user","message":{"content":"hi"}}\n')
    recording.close(stdout_lines=30)
    run.close()
    prefix = f"{recording.path}/"
    parts = sorted(
        recording.path.glob("stdout.*-*.ndjson"), key=lambda part: int(part.name.split(".")[1].split("-")[0])
    )
    assert len(parts) > 2
    for part in parts[lost]:
        part.unlink()
    if lost == slice(0):
        assert read_recording(run.path).prompts == ("hi",)
        assert read_stream(prefix, "stdout.ndjson").count(b"\n") == 30
    else:
        with pytest.raises(
            BadOption, match=r"a part of it was removed \(record_limit\): this run is not whole"
        ):
            read_recording(run.path)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1 GB", 1000])
def test_a_limit_that_means_nothing_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="record_limit must be a number of bytes from 1048576 on, or None"):
        proctor.claude("a", record_limit=value)  # type: ignore[arg-type]


@attrs.define
class Held:
    """An agent that is held: it is told something each hour, and has a new process every six."""

    run: RunDirectory
    log: EventLog
    recording: Recording
    said: int = 0

    @classmethod
    def open(cls, root: Path | None) -> Held:
        run = RunDirectory(root, "held", limit=LIMIT)
        return cls(run, run.open_log(), run.open_incarnation())

    def work(self, hour: int) -> None:
        if hour % 6 == 0:
            self.recording.close()
            self.recording = self.run.open_incarnation()
            self.recording.begin(cli="claude")
        for _ in range(50):
            self.recording.stdin(b'{"type":"user"}\n')
            self.recording.stdout(b"x" * 999 + b"\n", self.said)
            self.log.append([text(self.said)])
            self.said += 1

    def close(self) -> None:
        self.recording.close()
        self.log.release()
        self.run.close()


def ended(root: Path, days: float) -> Path:
    run = RunDirectory(root, "ended")
    (run.path / "events.ndjson").write_bytes(b"x" * 1000)
    when = time.time() - days * 24 * HOUR
    for path in (run.path / "events.ndjson", run.path):
        os.utime(path, (when, when))
    run.close()
    return run.path


@pytest.mark.parametrize("kept", [True, False])
async def test_a_week_of_an_agent_stays_within_its_quota_whatever_clocks_and_cleaners_do(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    root, temporary, began, jump = tmp_path / "runs", tmp_path / "temporary", time.time(), [0.0]
    (root / "somebody's").mkdir(parents=True)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    old, young = ended(root, 25), ended(root, 10)

    def wall() -> float:
        return began + trio.current_time() + jump[0]

    async with open_ledger(tmp_path / "hosts"), trio.open_nursery() as nursery:
        held = Held.open(root if kept else None)
        nursery.start_soon(partial(prune_regularly, root, wall=wall))
        reader, gaps = held.log.cursor(0), list[int]()
        for hour in range(7 * 24):
            jump[0] = {50: 400 * 24 * HOUR, 60: -400 * 24 * HOUR, 70: 0.0}.get(hour, jump[0])
            if hour in (100, 101):  # a cleaner of the temporary folder, also in mid-incarnation
                shutil.rmtree(temporary)
                temporary.mkdir()
            held.work(hour)
            assert size_of(held.run.path) <= LIMIT + 64_000
            assert old.exists() or hour > 5 * 24
            if hour % 50 == 49:  # a reader that sleeps for days
                seen = reader.batch_nowait()
                gaps += [e.data["next"] for e in seen if isinstance(e, Notice) and e.code == "events_dropped"]
            await trio.sleep(HOUR)
        assert (held.run.path.exists(), old.exists(), young.exists()) == (True, False, True)
        assert len([path for path in temporary.iterdir() if path.is_dir()]) == 1
        assert gaps
        held.log.close()
        first = held.log.first
        assert [event async for event in held.log.cursor(first)] == [text(n) for n in range(first, held.said)]
        held.close()
        nursery.cancel_scope.cancel()
    assert [*temporary.iterdir()] == []
    assert (root / "somebody's").is_dir()
