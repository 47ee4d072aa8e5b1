"""A store in one SQLite file, written by one thread.

Requests of many callers are written in one transaction (a group commit): a caller waits for the disk once, however many others
wait with it. The journal is a WAL, synchronised at each commit, so what was returned survives a power cut as far as the disk
keeps its word. Other programs may read the file meanwhile; a lock beside it keeps a second host away, since two would both begin
what neither has sent.

A record that cannot be decoded is left out with one log record: it costs itself, and nothing else.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from typing import Any, Generic, TypeVar

import attrs
import msgspec
import trio

from proctor.actors.store.backend import StoreError, StoreInUse
from proctor.actors.store.records import SendMark, StoredEnd, StoredRequest
from proctor.runtime.processes import make_directory, open_private
from proctor.runtime.trio_only import check_in_trio

T = TypeVar("T")

VERSION = 1
"""The form of the file."""
MAX_WAITING = 10_000
"""Calls that may wait for the disk; further ones are refused."""
APPLICATION = 0x50524354
"""In the file's header: it is a store of ours, whatever its name."""
_LOG = "proctor"
_TABLES = """
CREATE TABLE requests (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, key TEXT NOT NULL,
    holds_key INTEGER NOT NULL, accepted REAL NOT NULL, ended REAL, outcome TEXT, cost_usd REAL,
    request BLOB NOT NULL, sent BLOB, end BLOB
);
CREATE UNIQUE INDEX one_request_a_key ON requests (agent, key) WHERE holds_key;
CREATE INDEX open_requests ON requests (number) WHERE ended IS NULL;
CREATE INDEX ended_requests ON requests (ended) WHERE ended IS NOT NULL;
CREATE TABLE facts (agent TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (agent, name));
"""
_COLUMNS = "id, request, sent, end"
_encode = msgspec.json.Encoder().encode
_request = msgspec.json.Decoder(StoredRequest).decode
_mark = msgspec.json.Decoder(SendMark).decode
_end = msgspec.json.Decoder(StoredEnd).decode


@attrs.define(eq=False)
class _Job(Generic[T]):
    """Work for the thread. `done` is set in the loop of the caller, after the commit."""

    work: Callable[[sqlite3.Connection], T]
    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    done: trio.Event = attrs.field(factory=trio.Event)
    result: T | None = None
    error: Exception | None = None

    def conclude(self) -> None:
        with suppress(trio.RunFinishedError):  # the caller's program has ended meanwhile
            self.token.run_sync_soon(self.done.set)


class Store:
    """A `StoreBackend` in the file `path`, made when it is not there, with its folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self._jobs: Queue[_Job[Any] | None] = Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = -1

    # -- the port

    async def open(self) -> None:
        """See `StoreBackend.open`."""
        check_in_trio("proctor.Store")
        if self._thread is not None:
            raise StoreError(str(self.path), "is open already: each tree needs a store of its own")
        opened = _Job[None](lambda database: None)
        # A thread of its own, not one of Trio's: it lives as long as the store, and a disk that is slow takes no thread from others.
        self._thread = threading.Thread(
            target=self._serve, args=(opened,), name=f"store {self.path.name}", daemon=True
        )
        self._thread.start()
        with trio.CancelScope(shield=True):  # else what is being opened would stay open
            await opened.done.wait()
        if opened.error is not None:
            self._thread = None
            raise opened.error

    async def close(self) -> None:
        """See `StoreBackend.close`."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            with trio.CancelScope(shield=True):  # what callers were promised is written before the lock goes
                await trio.to_thread.run_sync(self._jobs.put, None)
                await trio.to_thread.run_sync(thread.join)

    async def accept(self, request: StoredRequest) -> StoredRequest:
        """See `StoreBackend.accept`."""
        return await self._do(lambda database: _accept(database, request))

    async def send(self, id: str, mark: SendMark) -> None:
        """See `StoreBackend.send`."""
        text = _encode(mark)
        await self._do(
            lambda database: database.execute(
                "UPDATE requests SET sent = ? WHERE id = ? AND ended IS NULL", (text, id)
            )
        )

    async def end(self, id: str, end: StoredEnd) -> None:
        """See `StoreBackend.end`."""
        row = (_encode(end), end.ended, end.outcome, end.cost_usd, end.sent != "no", id)
        await self._do(
            lambda database: database.execute(
                "UPDATE requests SET end = ?, ended = ?, outcome = ?, cost_usd = ?, holds_key = ?"
                " WHERE id = ? AND ended IS NULL",
                row,
            )
        )

    async def requests(
        self, *, agent: str | None = None, key: str | None = None, open_only: bool = False
    ) -> Sequence[StoredRequest]:
        """See `StoreBackend.requests`."""
        given = {"agent": agent, "key": key}
        conditions = [f"{name} = :{name}" for name, value in given.items() if value is not None]
        conditions += ["ended IS NULL"] if open_only else []
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = await self._do(
            lambda database: database.execute(
                f"SELECT {_COLUMNS} FROM requests{where} ORDER BY number", given
            ).fetchall()
        )
        return [request for row in rows if (request := self._decoded(row)) is not None]

    async def put(self, agent: str, name: str, value: str | None) -> None:
        """See `StoreBackend.put`."""
        statement = "REPLACE INTO facts (agent, name, value) VALUES (:agent, :name, :value)"
        if value is None:
            statement = "DELETE FROM facts WHERE agent = :agent AND name = :name"
        given = {"agent": agent, "name": name, "value": value}
        await self._do(lambda database: database.execute(statement, given))

    async def facts(self) -> Mapping[str, Mapping[str, str]]:
        """See `StoreBackend.facts`."""
        rows = await self._do(
            lambda database: database.execute("SELECT agent, name, value FROM facts").fetchall()
        )
        found: dict[str, dict[str, str]] = {}
        for agent, name, value in rows:
            found.setdefault(agent, {})[name] = value
        return found

    async def prune(self, before: float) -> int:
        """See `StoreBackend.prune`."""
        count = await self._do(
            lambda database: database.execute("DELETE FROM requests WHERE ended < ?", (before,)).rowcount
        )
        await self._do(_give_back)
        return count

    # -- the thread

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._thread is None:
            raise StoreError(str(self.path), "is not open")
        job = _Job(work)
        try:
            self._jobs.put_nowait(job)
        except Full:
            raise StoreError(str(self.path), f"is too slow: {MAX_WAITING} calls wait for its disk") from None
        await job.done.wait()  # cancelled here, the work is done all the same
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # set where no error is

    def _serve(self, opened: _Job[None]) -> None:
        try:
            database = self._open()
        except (OSError, sqlite3.Error, StoreError) as error:
            self._unlock()
            opened.error = error if isinstance(error, StoreError) else self._failure(error)
            opened.conclude()
            return
        opened.conclude()
        try:
            more = True
            while more:
                jobs, more = self._batch()
                self._commit(database, jobs)
        finally:
            with suppress(sqlite3.Error):
                database.close()
            self._unlock()

    def _batch(self) -> tuple[list[_Job[Any]], bool]:
        """Wait for a job, and take all that have come meanwhile; and whether more may come."""
        jobs = list[_Job[Any]]()
        while (job := self._jobs.get()) is not None:
            jobs.append(job)
            if self._jobs.empty():
                return jobs, True
        return jobs, False

    def _commit(self, database: sqlite3.Connection, jobs: Sequence[_Job[Any]]) -> None:
        try:
            self._transact(database, jobs)
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            if len(jobs) > 1:
                # One of them cannot be written: the others must not share its fate.
                for job in jobs:
                    self._commit(database, [job])
                return
            jobs[0].error = self._failure(error)
        for job in jobs:
            job.conclude()

    def _transact(self, database: sqlite3.Connection, jobs: Sequence[_Job[Any]]) -> None:
        if not jobs:
            return
        try:
            # At once for writing: a lock that is asked for later, behind a reader, is refused instead of waited for.
            database.execute("BEGIN IMMEDIATE")
            for job in jobs:
                job.result = job.work(database)
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled it back already
                database.execute("ROLLBACK")
            raise

    # -- the file

    def _open(self) -> sqlite3.Connection:
        make_directory(self.path.parent, parents=True, exist_ok=True)
        self._lock = self._locked()
        # Prompts and answers are the owner's alone to read, whatever the umask says.
        os.close(open_private(self.path, os.O_RDWR | os.O_NOFOLLOW))
        database = sqlite3.connect(self.path, isolation_level=None, timeout=5.0, check_same_thread=False)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        [(application,)] = database.execute("PRAGMA application_id")
        [(version,)] = database.execute("PRAGMA user_version")
        [(tables,)] = database.execute("SELECT count(*) FROM sqlite_schema")
        if tables and application != APPLICATION:
            raise StoreError(
                str(self.path), "is a database of another program: move that one away, or name another file"
            )
        if version > VERSION:
            raise StoreError(
                str(self.path),
                f"was written by a later version of proctor (form {version}, this one knows {VERSION}):"
                " run that version, or name another file",
            )
        # Before the first table: what was pruned is given back to the disk.
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if not tables:
            # In one transaction: a host that dies here leaves an empty file, never half of the tables.
            database.executescript(
                f"BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; {_TABLES} COMMIT;"
            )

    def _locked(self) -> int:
        path = self.path.with_name(f"{self.path.name}.lock")
        lock = open_private(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 20, 0)
            os.close(lock)
            raise StoreInUse(str(self.path), int(owner) if owner.isdigit() else None) from None
        except OSError:
            os.close(lock)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _failure(self, error: Exception) -> StoreError:
        what_to_do = ""
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            what_to_do = "; move it away, or name another file"
        found = StoreError(str(self.path), f"cannot be used: {error}{what_to_do}")
        found.__cause__ = error
        return found

    def _decoded(self, row: Sequence[Any]) -> StoredRequest | None:
        try:
            return _decode(row)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = "%s: the record of request %s cannot be read and is left out: %s"
            logging.getLogger(_LOG).warning(text, self.path, row[0], error)
            return None


def _decode(row: Sequence[Any]) -> StoredRequest:
    _, request, sent, end = row
    return msgspec.structs.replace(
        _request(request),
        sent=None if sent is None else _mark(sent),
        end=None if end is None else _end(end),
    )


def _give_back(database: sqlite3.Connection) -> None:
    """Give pages that are free to the file system, at most 40 MB at a time: others wait meanwhile."""
    [(pages,)] = database.execute("PRAGMA freelist_count")
    for _ in range(min(pages, 10_000)):
        database.execute("PRAGMA incremental_vacuum(1)")  # the module makes one step of it, which is one page


def _accept(database: sqlite3.Connection, request: StoredRequest) -> StoredRequest:
    found = database.execute(
        f"SELECT {_COLUMNS} FROM requests WHERE agent = ? AND key = ? AND holds_key",
        (request.agent, request.key),
    ).fetchone()
    if found is not None:
        return _decode(found)
    database.execute(
        "INSERT INTO requests (id, agent, key, holds_key, accepted, request) VALUES (?, ?, ?, 1, ?, ?)",
        (request.id, request.agent, request.key, request.accepted, _encode(request)),
    )
    return request
