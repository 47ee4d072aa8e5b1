from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.eventlog import RECENT_EVENTS, WINDOW_EVENTS, Cursor, EventLog
from proctor.protocols.vocabulary import AnyEvent, Notice, Text, TextDelta, ToolCall
from tests.actors.full_disk import disk_at
from tests.runtime.belongings import descriptors, descriptors_at_first


def deltas(first: int, count: int, size: int = 10) -> list[AnyEvent]:
    return [TextDelta(n, "t", f"{n}".ljust(size, ".")) for n in range(first, first + count)]


async def everything(log: EventLog, since: int = 0) -> list[AnyEvent]:
    return [event async for event in log.cursor(since)]


async def test_a_reader_gets_every_event_in_order() -> None:
    log = EventLog()
    log.append(deltas(0, 3))
    log.append(deltas(3, 2))
    log.close()
    assert await everything(log) == deltas(0, 5)
    log.release()


async def test_a_reader_waits_for_what_is_not_there_yet(nursery: trio.Nursery) -> None:
    log, seen = EventLog(), list[AnyEvent]()

    async def read() -> None:
        seen.extend(await everything(log))

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    log.append(deltas(0, 2))
    await trio.testing.wait_all_tasks_blocked()
    assert seen == []
    log.close()
    await trio.testing.wait_all_tasks_blocked()
    assert seen == deltas(0, 2)
    log.release()


async def test_a_reader_that_waits_ahead_of_the_end_begins_with_its_own_event(nursery: trio.Nursery) -> None:
    log, seen = EventLog(), list[AnyEvent]()

    async def read(since: int) -> None:
        seen.extend(await everything(log, since))

    nursery.start_soon(read, 5)
    await trio.testing.wait_all_tasks_blocked()
    for first in (0, 2, 4, 6):
        log.append(deltas(first, 2))
        await trio.testing.wait_all_tasks_blocked()
    log.close()
    await trio.testing.wait_all_tasks_blocked()
    assert seen == deltas(5, 3)
    log.release()


async def test_a_reader_that_gave_up_waiting_loses_nothing_and_costs_nothing(nursery: trio.Nursery) -> None:
    log, scope = EventLog(), trio.CancelScope()
    cursor = log.cursor(0)

    async def read() -> None:
        with scope:
            await cursor.batch()

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    assert log.statistics().readers_waiting == 1
    scope.cancel()
    assert log.statistics().readers_waiting == 0
    log.append(deltas(0, 2))
    assert await cursor.batch() == deltas(0, 2)
    log.release()


async def test_events_that_come_before_a_woken_reader_has_run_reach_it_once_and_in_order(
    nursery: trio.Nursery,
) -> None:
    log, seen = EventLog(), list[AnyEvent]()

    async def read() -> None:
        seen.extend(await everything(log))

    for _ in range(2):
        nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    for first in range(0, 6, 2):
        log.append(deltas(first, 2))
    log.close()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(seen, key=lambda event: event.frame) == sorted(
        deltas(0, 6) * 2, key=lambda event: event.frame
    )
    log.release()


@pytest.mark.covers("R051")
@pytest.mark.parametrize("since", [0, 1, 499, 500, 2999, 3000])
async def test_a_reader_behind_the_window_reads_from_the_disk(since: int, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.ndjson", window=50, window_bytes=10**6)
    for first in range(0, 3000, 10):
        log.append(deltas(first, 10))
    log.close()
    assert log.statistics().window_start > 2900
    assert await everything(log, since) == deltas(0, 3000)[since:]
    log.release()


@pytest.mark.covers("R051")
async def test_the_window_is_bounded_in_events_and_in_bytes() -> None:
    by_count = EventLog(window=100, window_bytes=10**9)
    by_bytes = EventLog(window=10**9, window_bytes=10_000)
    for log in (by_count, by_bytes):
        for first in range(0, 2000, 20):
            log.append(deltas(first, 20, size=100))
    assert by_count.end - by_count.statistics().window_start <= 100
    assert by_bytes.statistics().window_bytes <= 10_000
    by_count.release()
    by_bytes.release()


@pytest.mark.covers("R052")
async def test_a_log_keeps_few_events_in_memory_while_the_disk_takes_them_and_a_window_while_it_does_not(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path / "events.ndjson", failed=lambda error: None)

    def in_memory_after(count: int) -> int:
        for _ in range(count):
            log.append(deltas(log.end, 1))
        statistics = log.statistics()
        return statistics.end - statistics.window_start

    assert RECENT_EVENTS // 2 < in_memory_after(2000) <= RECENT_EVENTS
    with disk_at(tmp_path) as disk:
        disk.full = True
        assert WINDOW_EVENTS - RECENT_EVENTS < in_memory_after(3000) <= WINDOW_EVENTS
    log.resume()
    assert in_memory_after(100) <= RECENT_EVENTS
    log.close()
    seen = await everything(log)
    assert [*map(type, seen)].count(Notice) == 1
    assert seen[-WINDOW_EVENTS // 2 :] == deltas(5100 - WINDOW_EVENTS // 2, WINDOW_EVENTS // 2)
    log.release()


def test_events_that_are_appended_as_a_tuple_leave_nothing_behind() -> None:
    log = EventLog()
    gc.collect()
    before = {id(thing) for thing in gc.get_objects()}
    for number in range(100):
        log.append(tuple(deltas(number, 1)))
    left = [thing for thing in gc.get_objects() if id(thing) not in before]
    assert [thing for thing in left if type(thing).__name__ == "tuple_iterator"] == []
    log.release()


async def test_events_that_come_alone_are_read_from_every_place_in_order() -> None:
    log = EventLog(window=100)
    cursors: list[Cursor] = []
    for number in range(250):
        cursors.append(log.cursor(number))
        log.append(deltas(number, 1))
    log.close()
    for since, cursor in enumerate(cursors):
        assert [event async for event in cursor] == deltas(since, 250 - since)
        assert cursor.position == 250
    assert log.statistics().window_start >= 150
    log.release()


@pytest.mark.parametrize("said", [1, 2, 64, 200])
async def test_a_batch_that_was_given_or_handed_out_does_not_grow_with_what_follows(said: int) -> None:
    log = EventLog()
    given = deltas(0, said)
    log.append(given)
    cursor = log.cursor(0)
    handed = await cursor.batch()
    log.append(deltas(said, 1))
    assert (list(handed), given) == (deltas(0, said), deltas(0, said))
    assert list(await cursor.batch()) == deltas(said, 1)
    log.release()


async def test_what_a_reader_was_handed_does_not_grow_when_more_is_said() -> None:
    log = EventLog()
    log.append(deltas(0, 2))
    cursor = log.cursor(0)
    first = [await anext(cursor)]
    log.append(deltas(2, 1))
    assert cursor.position == 1
    assert [*first, *cursor.batch_nowait(), *cursor.batch_nowait()] == deltas(0, 3)
    assert (cursor.position, log.end) == (3, 3)
    log.release()


async def test_one_event_larger_than_the_window_is_read_back_whole() -> None:
    log = EventLog(window=10, window_bytes=1000)
    big = Text(0, "t", "x" * 3_000_000)
    log.append([big])
    log.append(deltas(1, 20))
    log.append(deltas(21, 20))
    log.close()
    assert await everything(log) == [big, *deltas(1, 40)]
    log.release()


@given(
    sizes=st.lists(st.integers(1, 30), max_size=40),
    window=st.integers(1, 50),
    reads=st.lists(st.booleans(), max_size=60),
)
def test_any_interleaving_of_writes_and_reads_loses_nothing(
    sizes: Sequence[int], window: int, reads: Sequence[bool]
) -> None:
    log = EventLog(window=window)
    cursor, seen, written = log.cursor(0), list[AnyEvent](), 0
    for size, read in zip(sizes, [*reads, *[False] * len(sizes)], strict=False):
        log.append(deltas(written, size))
        written += size
        if read:
            seen += cursor.batch_nowait()
    while batch := cursor.batch_nowait():
        seen += batch
    assert seen == deltas(0, written)
    assert cursor.position == written == log.end
    log.release()


async def test_leaving_a_loop_in_mid_batch_loses_nothing() -> None:
    log = EventLog()
    log.append(deltas(0, 5))
    log.close()
    cursor = log.cursor(0)
    async for event in cursor:
        if event.frame == 1:
            break
    assert cursor.position == 2
    assert list(await cursor.batch()) == deltas(2, 3)
    log.release()


async def test_a_reader_that_is_behind_lets_others_run() -> None:
    log = EventLog(window=1)
    for first in range(300):
        log.append(deltas(first, 1))
    log.close()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await everything(log)
        nursery.cancel_scope.cancel("read")
    assert turns > 0
    log.release()


async def test_a_closed_log_that_reopens_goes_on_at_its_position() -> None:
    log = EventLog()
    log.append(deltas(0, 1))
    log.close()
    assert await everything(log) == deltas(0, 1)
    log.reopen()
    log.append(deltas(1, 1))
    log.close()
    assert await everything(log, 1) == deltas(1, 1)
    log.release()


async def test_values_of_every_shape_come_back_from_the_disk_as_they_were(tmp_path: Path) -> None:
    events: list[AnyEvent] = [
        ToolCall(1, "t", "id", "Bash", {"command": "echo \u2028 é 🎉", "n": [1, None, 2.5]}),
        Notice(-1, None, "code", "text", {"deep": {"er": [True]}}),
    ]
    log = EventLog(tmp_path / "events.ndjson", window=1)
    log.append(events)
    log.append(deltas(0, 2))
    log.append(deltas(2, 2))
    log.close()
    assert (await everything(log))[:2] == events
    log.release()


async def test_a_full_disk_is_an_error_that_names_the_place() -> None:
    log = EventLog(Path("/dev/full"))
    with pytest.raises(RecordingFailed, match=f"'/dev/full': {os.strerror(errno.ENOSPC)}"):
        log.append(deltas(0, 1))
    log.release()


async def test_a_nameless_log_leaves_no_file_and_no_descriptor() -> None:
    before = descriptors_at_first()
    log = EventLog()
    log.append(deltas(0, 10))
    log.release()
    assert descriptors() == before


async def test_a_closed_log_holds_no_descriptor_and_is_still_read_from_its_file(tmp_path: Path) -> None:
    before, path = descriptors_at_first(), tmp_path / "events.ndjson"
    log = EventLog(path, window=1)
    for n in range(5):
        log.append(deltas(n, 1, 2_000))
    log.close()
    assert descriptors() == before
    assert await everything(log) == deltas(0, 5, 2_000)
    assert descriptors() == before


async def test_a_closed_log_that_reopens_writes_on_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    log = EventLog(path, window=1)
    log.append(deltas(0, 3, 2_000))
    log.close()
    log.reopen()
    log.append(deltas(3, 2, 2_000))
    log.close()
    later = EventLog(path)
    later.close()
    assert await everything(log) == await everything(later) == deltas(0, 5, 2_000)


@pytest.mark.parametrize("removed", ["the file", "the folder"])
async def test_a_closed_log_whose_file_was_removed_says_what_is_missing(tmp_path: Path, removed: str) -> None:
    path = tmp_path / "run" / "events.ndjson"
    path.parent.mkdir()
    log = EventLog(path, window=1)
    for n in range(6):
        log.append(deltas(n, 1))
    log.close()
    shutil.rmtree(path.parent) if removed == "the folder" else path.unlink()
    (missing, *rest) = await everything(log)
    assert isinstance(missing, Notice)
    assert missing.data == {"since": 0, "next": 6 - len(rest)}
    assert rest == deltas(6 - len(rest), len(rest))
    log.release()


async def test_a_reopened_log_whose_file_was_removed_goes_on_in_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    log = EventLog(path, window=1)
    for n in range(6):
        log.append(deltas(n, 1))
    log.close()
    path.unlink()
    log.reopen()
    for n in range(6, 12):
        log.append(deltas(n, 1))
    log.close()
    (missing, *rest) = await everything(log)
    assert isinstance(missing, Notice)
    assert missing.data == {"since": 0, "next": 6}
    assert rest == deltas(6, 6)


async def test_a_reopened_log_whose_file_somebody_cut_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    log = EventLog(path, window=1)
    log.append(deltas(0, 3))
    log.close()
    os.truncate(path, 10)
    log.reopen()
    with pytest.raises(RecordingFailed, match="another program has changed the file") as raised:
        log.append(deltas(3, 1))
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("window", [1, 1_000])
async def test_a_log_in_a_folder_that_goes_is_read_to_its_end_after_that(tmp_path: Path, window: int) -> None:
    before, folder = descriptors_at_first(), tmp_path / "run"
    folder.mkdir()
    log = EventLog(folder / "events.ndjson", window=window, lasting=False)
    for n in range(6):
        log.append(deltas(n, 1))
    log.close()
    assert (descriptors() == before) is (window > 1)  # what memory holds needs no file
    shutil.rmtree(folder)
    assert await everything(log) == deltas(0, 6)
    log.release()
    assert descriptors() == before


def test_a_position_below_zero_is_refused() -> None:
    log = EventLog()
    with pytest.raises(ValueError, match="since must be 0 or more, got -1"):
        log.cursor(-1)
    log.release()


TORN = (
    b"",
    b'{"type":"text","frame":1,"turn":"t","te',
    b"\0\0\0\0",
    b'{"type":"te\n{"type":"text","frame":1}\n',
    b"x" * 600_000,
)


@pytest.mark.parametrize(
    "tail", TORN, ids=["whole", "half an event", "zeros", "half a line in between", "long"]
)
@pytest.mark.parametrize("limit", [None, 100_000], ids=["one file", "segments"])
async def test_a_torn_log_is_cut_to_its_last_whole_event_and_gone_on_with(
    tail: bytes, limit: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "events.ndjson"
    before = EventLog(path, window=10, limit=limit)
    for number in range(0, 80, 2):
        before.append(deltas(number, 2, size=1000))
    before.release()
    with path.open("ab") as file:
        file.write(tail)
    log = EventLog(path, window=10, limit=limit)
    assert (log.first, log.end) == (0, 80)
    log.append(deltas(80, 3))
    log.close()
    assert await everything(log) == [*deltas(0, 80, size=1000), *deltas(80, 3)]
    assert await everything(log, 77) == [*deltas(77, 3, size=1000), *deltas(80, 3)]
    assert path.read_bytes().endswith(b"}\n")
    log.release()


async def test_a_log_of_nothing_but_half_an_event_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_bytes(b'{"type":')
    log = EventLog(tmp_path / "events.ndjson")
    log.append(deltas(0, 1))
    log.close()
    assert await everything(log) == deltas(0, 1)
    log.release()


async def test_an_event_that_a_full_disk_cut_short_is_not_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, write = EventLog(tmp_path / "events.ndjson", window=1), os.write
    log.append(deltas(0, 1))

    def half(fd: int, data: bytes) -> int:
        if len(data) < 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: len(data) - 20])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(RecordingFailed, match="No space left on device"):
            log.append(deltas(1, 1))
    for number in range(1, 6):
        log.append(deltas(number, 1))
    log.close()
    assert await everything(log) == deltas(0, 6)
    log.release()


@pytest.mark.parametrize("limit", [None, 400_000], ids=["one file", "segments"])
@pytest.mark.parametrize("before", [0, 40], ids=["nothing before", "events before"])
async def test_positions_behind_a_gap_are_the_same_when_the_log_is_read_from_disk_later(
    before: int, limit: int | None, tmp_path: Path
) -> None:
    path, failures = tmp_path / "events.ndjson", list[RecordingFailed]()
    log = EventLog(path, window=10, limit=limit, failed=failures.append)
    with disk_at(tmp_path) as disk:
        log.append(deltas(0, before, size=1000))
        disk.full = True
        for number in range(before, 100):
            log.append(deltas(number, 1, size=1000))
        disk.full = False
        log.resume()
        log.append(deltas(100, 30, size=1000))
        log.close()
    seen = await everything(log)
    log.release()
    later = EventLog(path, window=10, limit=limit)
    later.close()
    assert (len(failures), later.end) == (1, 130)
    assert await everything(later) == seen
    for each in range(95, 130):
        assert await everything(later, each) == deltas(each, 130 - each, size=1000)
    gap = seen.pop(before)
    assert isinstance(gap, Notice)
    assert gap.data == {"since": before, "next": 130 - len(seen) + before}
    assert "the disk did not accept them" in gap.text
    behind = gap.data["next"]
    assert seen == [*deltas(0, before, size=1000), *deltas(behind, 130 - behind, size=1000)]
    later.release()


async def test_positions_stay_when_all_older_segments_are_gone_and_the_log_is_read_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.ndjson"
    log = EventLog(path, window=1, limit=8_000)
    for number in range(10):
        log.append(deltas(number, 1, size=1000))
    log.append(deltas(10, 1, size=20_000))  # has no room beside any other
    log.append(deltas(11, 1, size=20_000))
    log.release()
    later = EventLog(path, limit=8_000)
    later.close()
    assert (later.first, later.end) == (11, 12)
    assert await everything(later, 11) == deltas(11, 1, size=20_000)
    later.release()


async def test_a_log_that_goes_on_behind_a_gap_twice_has_both_gaps_for_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    log = EventLog(path, window=4, failed=lambda _: None)
    with disk_at(tmp_path) as disk:
        for full, first in ((False, 0), (True, 20), (False, 40), (True, 60), (False, 80)):
            disk.full = full
            if not full:
                log.resume()
            for number in range(first, first + 20):
                log.append(deltas(number, 1))
    log.close()
    seen = await everything(log)
    gaps = [(seen.index(event), event.data) for event in seen if isinstance(event, Notice)]
    log.release()
    later = EventLog(path)
    later.close()
    assert await everything(later) == seen
    assert [(place, data["since"]) for place, data in gaps] == [
        (20, 20),
        (20 + 1 + 60 - gaps[0][1]["next"], 60),
    ]
    later.release()
