from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from proctor.actors.store.backend import StoreError, StoreInUse
from proctor.actors.store.records import StoredEnd
from proctor.actors.store.sqlite import VERSION, Store
from proctor.runtime.processes.process import Command, open_process
from tests.actors.store.test_backends import ANSWERED, request
from tests.runtime.programs import AT_ONCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


async def test_a_second_host_is_told_who_has_the_store(path: Path) -> None:
    first, second = Store(path), Store(path)
    await first.open()
    with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()}$"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()
    await second.close()


async def test_a_store_is_used_while_it_is_open_and_by_one_tree(path: Path) -> None:
    store = Store(path)
    with pytest.raises(StoreError, match="is not open"):
        await store.requests()
    await store.open()
    with pytest.raises(StoreError, match="each tree needs a store of its own"):
        await store.open()
    await store.close()
    with pytest.raises(StoreError, match="is not open"):
        await store.accept(request("1"))


async def test_a_store_of_a_later_version_is_refused_and_left_alone(path: Path) -> None:
    store = Store(path)
    await store.open()
    await store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    before = content(path)
    with pytest.raises(
        StoreError, match=f"later version of proctor .form {VERSION + 1}, this one knows {VERSION}"
    ):
        await store.open()
    assert content(path) == before


@pytest.mark.parametrize("kind", ["text", "database"])
async def test_a_file_of_another_program_is_refused_and_left_alone(path: Path, kind: str) -> None:
    foreign(path, kind)
    before = content(path)
    with pytest.raises(
        StoreError, match=r"(is not a database; |database of another program: ).*move (it|that one) away"
    ):
        await Store(path).open()
    assert content(path) == before


async def test_a_record_that_is_damaged_costs_itself_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path)
    await store.open()
    for id in ("1", "2", "3"):
        await store.accept(request(id, key=id))
    await store.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE requests SET request = 'rubbish' WHERE id = '2'")
    database.close()
    await store.open()
    assert [kept.id for kept in await store.requests()] == ["1", "3"]
    [record] = caplog.records
    assert "the record of request 2 cannot be read and is left out" in record.getMessage()
    # beside others in one transaction: its key cannot be given away, theirs can
    results = dict[str, str]()
    async with trio.open_nursery() as nursery:

        async def accept(id: str, key: str) -> None:
            try:
                results[id] = (await store.accept(request(id, key=key))).id
            except StoreError as error:
                results[id] = str(error)

        for id, key in (("4", "4"), ("5", "2"), ("6", "6")):
            nursery.start_soon(accept, id, key)
    assert (results["4"], results["6"]) == ("4", "6")
    assert "cannot be used" in results["5"]
    await store.close()


async def test_what_is_kept_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "fleet.db"
    before = os.umask(0)
    try:
        store = Store(path)
        await store.open()
        await store.accept(request("1"))
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
        await store.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert set(modes) == {"fleet.db", "fleet.db-wal", "fleet.db-shm", "fleet.db.lock"}


@contextmanager
def no_file_larger_than(size: int) -> Generator[None]:
    """As on a disk that is full."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_is_an_error_of_the_one_that_does_not_fit(path: Path) -> None:
    store = Store(path)
    await store.open()
    await store.accept(request("1", key="1"))
    with no_file_larger_than(300_000):
        with pytest.raises(StoreError, match="cannot be used"):
            await store.accept(request("2", key="2", prompt="x" * 1_000_000))
        assert (await store.accept(request("3", key="3"))).id == "3"
    assert (await store.accept(request("4", key="4", prompt="x" * 1_000_000))).id == "4"
    await store.end("1", ANSWERED)
    await store.close()
    await store.open()
    assert [(kept.id, kept.end is None) for kept in await store.requests()] == [
        ("1", False),
        ("3", True),
        ("4", True),
    ]
    await store.close()


async def test_what_is_pruned_is_given_back_to_the_disk(path: Path) -> None:
    store = Store(path)
    await store.open()
    for n in range(200):
        await store.accept(request(str(n), key=str(n), prompt="x" * 10_000))
        await store.end(str(n), StoredEnd(ended=float(n), outcome="ok", sent="yes"))
    await store.close()
    large = len(content(path))
    await store.open()
    assert await store.prune(190.0) == 190
    await store.close()
    assert len(content(path)) < large / 5


KILLED = """
import sys, trio
from proctor.actors.store.sqlite import Store
from tests.actors.store.test_backends import ANSWERED, request
async def main():
    store = Store(sys.argv[1])
    await store.open()
    async def accept(n):
        for m in range(1000):
            id = f"{n}-{m}"
            await store.accept(request(id, key=id))
            print("accepted", id, flush=True)
            await store.end(id, ANSWERED)
            print("ended", id, flush=True)
    async with trio.open_nursery() as nursery:
        for n in range(5):
            nursery.start_soon(accept, n)
trio.run(main)
"""


async def test_what_a_killed_host_was_answered_is_there(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.db"
        printed = await killed_after(path, 40)
        store = Store(path)
        await store.open()  # its lock went with it
        kept = {one.id: one.end is not None for one in await store.requests()}
        await store.close()
        for line in printed:
            what, id = line.split()
            assert id in kept
            assert kept[id] or what == "accepted"


async def killed_after(path: Path, lines: int) -> list[str]:
    """What a host has printed by then, which is killed in the midst of its work."""
    command = Command((sys.executable, "-c", KILLED, str(path)), dict(os.environ))
    received = b""
    async with open_process(command, ladder=AT_ONCE) as process:
        while received.count(b"\n") < lines:
            received += await process.receive()
    return received.decode().split("\n")[:-1]


def content(path: Path) -> bytes:
    return path.read_bytes()


def foreign(path: Path, kind: str) -> None:
    if kind == "text":
        path.write_text("Dear diary, " * 500)
    else:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE mine (x)")
        database.close()
