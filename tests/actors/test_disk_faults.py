"""Each call to the disk fails once: a named cause, whole files, and neighbours that go on."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import attrs
import pytest

from proctor.actors.errors import RecordingFailed
from proctor.actors.process.orphans import track_processes
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.recording.retention import prune
from proctor.actors.serving.sessions import Sessions
from proctor.actors.setup.registration import CLIENTS, register
from proctor.protocols.vocabulary import Text
from proctor.runtime.processes.ledger import current_ledger, make_folder, open_ledger
from tests.actors.test_registration import CONFIGS, GOLDEN, REQUEST, file_of
from tests.runtime.syscall_faults import ON_DISK, Failure, Trial, trials

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
ON_THE_WAY = ("proctor.actors.", "proctor.runtime.")
KINDS = ("recording", "event log", "ledger", "sessions", "registration")


def text(number: int) -> Text:
    return Text(number, "1.1", "x" * 500)


@attrs.define
class Disk:
    """One folder with what a scenario needs. `neighbour` was there before, and is to work after every failure."""

    root: Path
    neighbour: RunDirectory
    log: EventLog
    numbers: count[int] = attrs.field(factory=count)
    wrong: list[str] = attrs.field(factory=list[str])

    def place(self) -> Path:
        return self.root / f"{next(self.numbers)}"

    async def recording(self) -> None:
        place = self.place()
        run = RunDirectory(place, "a", limit=2**20)
        try:
            recording = run.open_incarnation()
            try:
                recording.begin(cli="claude", argv=("claude",))
                for number in range(12):
                    recording.stdout(b"%9d\n" % number * 4000, number * 4000)
                recording.stdin(b"{}\n")
                recording.stderr(b"oh\n")
            finally:
                recording.close(stdout_lines=48_000)
        finally:
            run.close()
            for path in place.rglob("stdout*.ndjson"):
                self._must_be(path.read_bytes()[-1:] in (b"", b"\n"), f"{path.name} ends in half a line")
            shutil.rmtree(place)

    async def event_log(self) -> None:
        place = self.place()
        place.mkdir()
        log = EventLog(place / "events.ndjson", window=2, limit=8_000)
        failed: list[RecordingFailed] = []
        try:
            for number in range(30):
                try:
                    log.append([text(number)])
                except RecordingFailed as error:
                    failed.append(error)
            first, said = log.first, log.end
            log.close()
            try:
                seen = [event async for event in log.cursor(first)]
            except RecordingFailed as error:
                failed.append(error)
                seen = [event async for event in log.cursor(log.first)]
                first = log.first
            self._must_be(len(seen) == said - first, f"{len(seen)} of {said - first} events are readable")
            self._must_be(len(failed) <= 1, "a failure had another behind it")
            log.release()
            again = EventLog(place / "events.ndjson", limit=8_000)
            self._must_be((again.first, again.end) == (first, said), "another log after it was opened again")
            again.release()
        finally:
            log.release()
        for refusal in failed:
            raise refusal

    async def ledger(self) -> None:
        place = self.place()
        async with open_ledger(place) as ledger:
            ledger.note(os.getpid(), f"{ledger.key}/1/a")
            folder = ledger.make_folder("proctor-test-")
            async with open_ledger(place) as other:
                await other.sweep()
            self._must_be(folder.is_dir(), "the folder of a living host was removed")
            ledger.note(os.getpid(), f"{ledger.key}/2/a")
        self._must_be(not folder.exists() or bool([*place.iterdir()]), "a folder stayed that no ledger names")

    async def sessions(self) -> None:
        root = self.place()
        for _ in range(2):
            async with Sessions(root, keep=True) as sessions:
                async with sessions.hold("a") as session:
                    (session.path / "file").write_text("mine")
                async with sessions.hold():
                    pass
        shutil.rmtree(root)

    async def registration(self) -> None:
        for client in CLIENTS:
            home = self.place()
            path = file_of(client, home)
            shutil.copy(CONFIGS / GOLDEN[client][0], path)
            made = await register(CLIENTS[client], REQUEST, {"HOME": str(home)})
            before, after = ((CONFIGS / name).read_bytes() for name in GOLDEN[client][:2])
            self._must_be(path.read_bytes() == (after if made.error is None else before), f"half of {path}")
            if made.error is not None:
                raise RecordingFailed(str(path), OSError(made.error))

    async def works_still(self) -> None:
        """What was there before goes on, and the next of its kind begins."""
        self.log.append([text(self.log.end)])
        recording = self.neighbour.open_incarnation()
        recording.stdout(b"{}\n", 0)
        recording.close(stdout_lines=1)
        assert prune(self.neighbour.path.parent, keep_bytes=0, keep_seconds=0) == []
        async with track_processes():
            assert current_ledger() is not None
            assert make_folder("proctor-test-").is_dir()

    def _must_be(self, right: bool, otherwise: str) -> None:
        if not right:
            self.wrong.append(otherwise)

    def faults(self) -> tuple[str, ...]:
        """What was wrong since the last look."""
        found, self.wrong = tuple(self.wrong), []
        return found


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    neighbour = RunDirectory(tmp_path / "runs", "neighbour")
    return Disk(tmp_path, neighbour, neighbour.open_log())


def complaint(trial: Trial, failure: Failure) -> str | None:
    """What is wrong with the end of a trial."""
    where = f"call {trial.nth}, {trial.call}"
    if trial.left:
        return f"{where}: left {', '.join(trial.left)} behind"
    error = trial.raised
    if error is None:
        return None
    reason = "no failure" if failure == "short write" else os.strerror(getattr(errno, failure))
    if not isinstance(error, RecordingFailed | OSError) or reason.lower() not in str(error).lower():
        return f"{where}: {type(error).__name__} {error}"
    return None


@pytest.mark.parametrize("failure", ON_DISK)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_to_the_disk_that_fails_is_named_and_leaves_whole_files_and_live_neighbours(
    kind: str, failure: Failure, disk: Disk
) -> None:
    scenario: Callable[[], Awaitable[None]] = getattr(disk, kind.replace(" ", "_"))
    ended = await trials(scenario, failure, left=disk.faults, ours=ON_THE_WAY)
    assert [wrong for trial in ended if (wrong := complaint(trial, failure))] == []
    assert ended
    await disk.works_still()
    await scenario()
    assert disk.wrong == []
    disk.log.release()
    disk.neighbour.close()
