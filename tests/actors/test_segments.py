from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.segments import SegmentedFile, segments_of


def line(number: int) -> bytes:
    return f"{number:09}\n".encode()


def filled(path: Path, count: int, segment: int | None = 100) -> SegmentedFile:
    file = SegmentedFile(path, segment=segment)
    for number in range(count):
        file.append(line(number))
    return file


def content(file: SegmentedFile) -> bytes:
    parts, place = list[bytes](), file.begin
    while place < file.end:
        parts.append(part := file.read(place, 64))
        place = max(place + len(part), file.begin)
    return b"".join(parts)


def test_what_is_appended_is_read_back_over_all_segments(tmp_path: Path) -> None:
    file = filled(tmp_path / "a.ndjson", 35)
    assert content(file) == b"".join(map(line, range(35)))
    assert [(s.first, s.end) for s in segments_of(file.path)] == [(0, 10), (10, 20), (20, 30)]
    assert (file.units, file.end, file.held, file.divided) == (35, 350, 350, True)
    file.close()


def test_the_oldest_segments_go_first_and_places_stay(tmp_path: Path) -> None:
    file = filled(tmp_path / "a.ndjson", 35)
    assert [file.drop_oldest() for _ in range(4)] == [True, True, True, False]
    assert (file.first, file.begin, file.held) == (30, 300, 50)
    assert file.read(320, 10) == line(32)
    assert file.read(100, 10) == b""
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        "a.ndjson": 50,
        "a.30-30.ndjson": 0,  # by which whoever opens it later knows that it begins with unit 30
    }
    file.close()
    later = SegmentedFile(tmp_path / "a.ndjson", segment=100)
    assert (later.first, later.drop_oldest()) == (30, False)
    later.close()


def test_a_segment_ends_at_the_end_of_a_line_unless_a_line_has_none(tmp_path: Path) -> None:
    file = SegmentedFile(tmp_path / "a.ndjson", segment=10)
    for part in (b"0123456789", b"abc\n", b"next\n"):
        file.append(part)
    [segment] = segments_of(file.path)
    assert segment.path.read_bytes() == b"0123456789abc\n"
    file.append(b"x" * 30)
    file.append(b"y")
    assert [s.size for s in segments_of(file.path)] == [14, 35]
    file.close()


def test_a_file_is_gone_on_with_where_it_ended(tmp_path: Path) -> None:
    filled(tmp_path / "a.ndjson", 25).close()
    file = SegmentedFile(tmp_path / "a.ndjson", segment=100)
    assert (file.first, file.begin, file.end, file.held) == (0, 0, 250, 250)
    assert content(file) == b"".join(map(line, range(25)))
    file.close()


def test_a_segment_that_somebody_removed_is_lost_and_nothing_else(tmp_path: Path) -> None:
    file = filled(tmp_path / "a.ndjson", 35)
    for path in tmp_path.iterdir():
        path.unlink()
    assert file.read(120, 10) == b""
    assert file.begin == 300
    assert file.read(330, 10) == line(33)
    file.append(b"x" * 60)
    file.append(line(99))
    file.append(line(100))
    assert content(file)[-10:] == line(100)
    file.close()


@pytest.mark.parametrize("call", ["open", "rename"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_rotation_that_is_refused_costs_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    file, calls = filled(tmp_path / "a.ndjson", 10), list[int]()
    real: Any = getattr(os, call)

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == nth:
            raise OSError(errno.EMFILE, "no")
        return real(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        file.append(line(10))
    for number in range(11, 25):
        file.append(line(number))
    assert content(file) == b"".join(map(line, range(25)))
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]
    file.close()


def test_what_a_full_disk_took_of_a_write_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = filled(tmp_path / "a.ndjson", 3)
    write, truncate, full = os.write, os.ftruncate, [True]

    def half(fd: int, data: Any) -> int:
        if len(data) < 10:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data[:4])

    def truncated(fd: int, size: int) -> None:
        truncate(-1 if full else fd, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(RecordingFailed, match="full"):
            file.append(line(3))
        patched.setattr(os, "ftruncate", truncated)
        with pytest.raises(RecordingFailed, match="full"):
            file.append(line(3))
    file.append(line(4))
    assert file.path.read_bytes() == line(0) + line(1) + line(2) + line(4)
    file.close()


def test_a_link_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordingFailed):
        SegmentedFile(tmp_path / "a.ndjson")
    assert not (tmp_path / "elsewhere").exists()
