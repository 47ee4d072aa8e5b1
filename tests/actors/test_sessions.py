from __future__ import annotations

import math
import os
import resource
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proctor.actors.errors import (
    BadOption,
    SessionBusy,
    SessionOwned,
    SessionsClosed,
    SessionsFull,
    StartRefused,
)
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import ask
from proctor.actors.serving.session_dir import SESSION
from proctor.actors.serving.sessions import Sessions, key_of
from proctor.runtime.processes.tags import tag_folder
from tests.actors.far_end import plan_of
from tests.actors.spoken import spoken_plan

ODD = [
    *("..", ".", "/", "/etc/passwd", "../../escape", "a/b", "a\0b", "\n", " ", "~", "$(touch x)", "*"),
    *(
        "x" * 1_000_000,
        "ä",
        "a\u0308",
        "İ",
        "\udcff",
        "\ud800",
        "CON",
        "lock",
        ".gone-1",
        "-rf",
        "Abc",
        "abc",
    ),
]


def folders(root: Path) -> set[str]:
    """What is in it, but for what is being removed just now."""
    return {name for name in left(root) if not name.startswith(".gone-")}


def left(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def everything(root: Path) -> Iterator[tuple[str, int, bytes]]:
    for path in sorted(root.rglob("*")):
        yield str(path), path.lstat().st_mode, path.read_bytes() if path.is_file() else b""


@pytest.mark.covers("R128")
async def test_the_same_id_has_the_same_directory_and_another_another(tmp_path: Path) -> None:
    async with Sessions(tmp_path / "root") as sessions:
        async with sessions.hold("a") as a, sessions.hold("b") as b:
            assert a.path != b.path
            assert (mode(a.path), mode(a.path.parent), mode(tmp_path / "root")) == (0o700,) * 3
        async with sessions.hold("a") as again:
            assert again.path == a.path


@pytest.mark.covers("R128", "R133")
async def test_no_id_leads_out_of_the_root_and_no_two_share_a_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with Sessions(root, limit=len(ODD)) as sessions:
        for number, id in enumerate(ODD, 1):
            async with sessions.hold(id) as session:
                assert session.path.parent.parent == root
                assert session.path.resolve().is_relative_to(root.resolve())
            assert len(folders(root)) == number
        assert len({name.casefold() for name in folders(root)}) == len(ODD)
    assert (left(tmp_path), left(root)) == ({"root"}, set())


@pytest.mark.covers("R129")
async def test_a_file_of_one_call_is_there_in_the_next(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        async with sessions.hold("a") as session:
            (session.path / ".env").write_text("mine")
        async with sessions.hold("a") as session, sessions.hold("b") as other:
            assert (session.path / ".env").read_text() == "mine"
            assert [*other.path.iterdir()] == []


@pytest.mark.covers("R127")
async def test_a_call_without_an_id_stands_alone(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        async with sessions.hold() as one, sessions.hold(None) as two:
            assert one.path != two.path
            assert one.id is None
        assert (len(sessions), folders(tmp_path)) == (0, set())


async def test_an_id_without_a_letter_is_refused(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        with pytest.raises(BadOption, match="a text that is not empty"):
            async with sessions.hold(""):
                pass


@pytest.mark.covers("R130")
async def test_directories_go_when_the_sessions_are_closed(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        for id in "abc":
            async with sessions.hold(id) as session:
                (session.path / "deep" / "er").mkdir(parents=True)
        assert len(folders(tmp_path)) == 3
    assert left(tmp_path) == set()
    with pytest.raises(SessionsClosed, match="not open"):
        async with sessions.hold("a"):
            pass


@pytest.mark.covers("R130")
async def test_an_error_in_the_block_leaves_bare_and_cleans_up(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Sessions(tmp_path) as sessions, sessions.hold("a"):
            raise ZeroDivisionError
    assert left(tmp_path) == set()


@pytest.mark.covers("R131")
async def test_an_idle_session_expires_and_a_busy_one_does_not(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with Sessions(tmp_path, ttl=10) as sessions:
        async with sessions.hold("busy"):
            async with sessions.hold("idle"):
                await trio.sleep(100)
            await trio.sleep(9)
            assert "idle" in sessions
            await trio.sleep(2)
            assert ("idle" in sessions, "busy" in sessions) == (False, True)
            assert folders(tmp_path) == {key_of("busy")}
        await trio.sleep(9)
        async with sessions.hold("busy"):
            pass
        await trio.sleep(9)
        assert "busy" in sessions  # used again, so its time began anew
        await trio.sleep(2)
        assert folders(tmp_path) == set()


@pytest.mark.covers("R132")
async def test_the_one_that_was_idle_longest_makes_room(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with Sessions(tmp_path, limit=3, ttl=math.inf) as sessions:
        for id in ("first", "second", "third", "first"):
            async with sessions.hold(id):
                await trio.sleep(1)
        async with sessions.hold("fourth"):
            assert [id in sessions for id in ("first", "second", "third", "fourth")] == [
                True,
                False,
                True,
                True,
            ]
            assert len(folders(tmp_path)) == 3


@pytest.mark.covers("R132")
async def test_one_in_use_makes_no_room_and_the_refusal_says_so(tmp_path: Path) -> None:
    async with Sessions(tmp_path, limit=2) as sessions, sessions.hold("a"), sessions.hold("b"):
        with pytest.raises(SessionsFull, match="all of 2 sessions are in use"):
            async with sessions.hold("c"):
                pass
        assert folders(tmp_path) == {key_of("a"), key_of("b")}


@pytest.mark.covers("R133")
async def test_two_first_calls_at_once_make_one_directory_and_take_turns(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    told: list[str] = []

    async def call(name: str) -> None:
        async with sessions.hold("a") as session:
            told.extend([name, str(session.path)])
            (session.path / "half").write_text(name)
            await trio.sleep(1)
            assert (session.path / "half").read_text() == name
            told.append(name)

    async with Sessions(tmp_path, limit=1) as sessions:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "x")
            nursery.start_soon(call, "y")
        [path] = folders(tmp_path)
        first, second = told[0], told[3]
        files = str(tmp_path / path / "files")
        assert told == [first, files, first, second, files, second]
        assert {first, second} == {"x", "y"}


async def test_a_call_that_is_cancelled_while_it_waits_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    async with Sessions(tmp_path, limit=1) as sessions:
        async with sessions.hold("a"), trio.open_nursery() as nursery:
            nursery.start_soon(_held, sessions, "a")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        async with sessions.hold("b"):
            assert "a" not in sessions  # it was idle: it could make room


async def _held(sessions: Sessions, id: str) -> None:
    async with sessions.hold(id):
        await trio.sleep_forever()


async def test_who_waits_when_the_sessions_close_is_told(tmp_path: Path) -> None:
    with pytest.RaisesGroup(SessionsClosed):
        async with trio.open_nursery() as nursery:
            async with Sessions(tmp_path) as sessions:
                holding = sessions.hold("a")
                await holding.__aenter__()
                nursery.start_soon(_held, sessions, "a")
                await wait_all_tasks_blocked()
            await holding.__aexit__(None, None, None)
    assert left(tmp_path) == set()


@pytest.mark.covers("R130")
async def test_removing_follows_no_link_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o555)
    (tmp_path / "file").write_text("precious")
    async with Sessions(tmp_path / "root") as sessions:
        async with sessions.hold("a") as session:
            (session.path / "link").symlink_to(outside)
            (session.path / "file").symlink_to(tmp_path / "file")
            (session.path / "locked").mkdir()
            (session.path / "locked" / "link").symlink_to(outside)
            (session.path / "locked").chmod(0o500)
        async with sessions.hold("b") as session:
            session.path.rmdir()
            session.path.symlink_to(outside)
    assert left(tmp_path / "root") == set()
    assert (mode(outside), (tmp_path / "file").read_text()) == (0o555, "precious")


async def test_a_working_directory_that_was_removed_is_there_again(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        async with sessions.hold("a") as session:
            session.path.rmdir()
        async with sessions.hold("a") as session:
            assert session.path.is_dir()


async def test_a_link_in_the_place_of_a_session_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    async with Sessions(root) as sessions:
        (root / key_of("a")).symlink_to(outside)
        with pytest.raises(PermissionError, match="no directory of ours"):
            async with sessions.hold("a"):
                pass
        assert len(sessions) == 0
        async with sessions.hold("b") as session:
            session.path.rmdir()
            session.path.symlink_to(outside)
        with pytest.raises(PermissionError, match="no directory of ours"):
            async with sessions.hold("b"):
                pass
    assert [*outside.iterdir()] == []


async def test_a_link_back_is_refused_and_what_makes_room_for_a_refused_one_goes(tmp_path: Path) -> None:
    async with Sessions(tmp_path, limit=1) as sessions:
        async with sessions.hold("old"):
            pass
        (tmp_path / key_of("new")).symlink_to(tmp_path)
        with pytest.raises(PermissionError):
            async with sessions.hold("new"):
                pass
        assert folders(tmp_path) == {key_of("new")}


def left_by_a_dead_host(root: Path, id: str) -> Path:
    path = root / key_of(id)
    path.mkdir()
    (path / "lock").touch()
    tag_folder(path, SESSION, path.name)
    return path


@pytest.mark.covers("R130")
async def test_what_a_host_that_died_has_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as living, living.hold("a") as held:
        dead = left_by_a_dead_host(tmp_path, "dead")
        (dead / "files").mkdir()
        left_by_a_dead_host(tmp_path, "removed").rename(tmp_path / f".gone-{0:032}")
        (tmp_path / f".gone-{2:032}").mkdir()
        (tmp_path / f".gone-{1:032}").symlink_to(tmp_path / "notes")
        (tmp_path / "notes").mkdir()
        (tmp_path / "README").write_text("not ours")
        async with Sessions(tmp_path) as sessions:
            assert left(tmp_path) == {key_of("a"), "notes", "README"}
            with pytest.raises(
                SessionBusy, match="session 'a' did not take the request: another host has it"
            ):
                async with sessions.hold("a"):
                    pass
        assert held.path.is_dir()


async def test_a_kept_session_whose_working_directory_was_removed_is_had_again(tmp_path: Path) -> None:
    async with Sessions(tmp_path, keep=True) as sessions, sessions.hold("a") as session:
        session.path.rmdir()
    async with Sessions(tmp_path, keep=True) as sessions, sessions.hold("a") as session:
        assert session.path.is_dir()


async def test_what_others_keep_below_a_root_is_never_swept_whatever_it_looks_like(tmp_path: Path) -> None:
    sha1 = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    for name in ("profile", ".gone-fishing", key_of("a")[:-1], key_of("a").upper(), sha1, f".gone-{0:032}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
        (tmp_path / name / "work").touch()
    before = left(tmp_path)
    async with Sessions(tmp_path):
        pass
    assert left(tmp_path) == before


async def test_a_sweep_that_is_given_up_leaves_no_session_locked(tmp_path: Path) -> None:
    for id in ("a", "b"):
        left_by_a_dead_host(tmp_path, id)
    before = open_files()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with Sessions(tmp_path):
            pass
    assert open_files() == before


async def test_a_sweep_of_more_than_there_may_be_open_files_holds_one_lock_at_a_time(tmp_path: Path) -> None:
    for number in range(100):
        left_by_a_dead_host(tmp_path, str(number))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 30, hard))
    try:
        async with Sessions(tmp_path):
            assert left(tmp_path) == set()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_kept_sessions_outlive_their_host_with_their_conversation_until_they_are_old(
    tmp_path: Path,
) -> None:
    plan = spoken_plan()
    async with Sessions(tmp_path, keep=True) as sessions:
        async with sessions.hold("a") as session:
            (session.path / "file").write_text("mine")
            session.remember(plan, Answer(agent="x", outcome="ok", session_id="s-1"))
        async with sessions.hold():
            pass
    async with Sessions(tmp_path):
        assert folders(tmp_path) == {key_of("a")}
    async with Sessions(tmp_path, keep=True) as sessions, sessions.hold("a") as session:
        assert (session.path / "file").read_text() == "mine"
        assert session.conversation(plan) == "s-1"
    age(tmp_path, "a", 1e9)
    async with Sessions(tmp_path, keep=True):
        assert folders(tmp_path) == set()


def age(root: Path, id: str, seconds: float) -> None:
    when = time.time() - seconds
    for path in (root / key_of(id), root / key_of(id) / "files"):
        os.utime(path, (when, when))


DAY = 86400.0


@pytest.mark.parametrize(
    ("ttl", "days", "there"), [(None, 29, True), (None, 31, False), (40 * DAY, 31, True), (3600, 1, False)]
)
async def test_a_kept_session_that_nobody_used_for_a_day_is_there_for_the_next_host(
    ttl: float | None, days: int, there: bool, tmp_path: Path
) -> None:
    async with Sessions(tmp_path, keep=True, ttl=ttl) as sessions, sessions.hold("a"):
        pass
    age(tmp_path, "a", days * DAY)
    async with Sessions(tmp_path, keep=True, ttl=ttl):
        assert folders(tmp_path) == ({key_of("a")} if there else set())


async def test_sessions_that_are_not_kept_do_not_shorten_the_life_of_kept_ones_on_their_root(
    tmp_path: Path,
) -> None:
    async with Sessions(tmp_path, keep=True, ttl=40 * DAY) as sessions, sessions.hold("a"):
        pass
    age(tmp_path, "a", 35 * DAY)
    async with Sessions(tmp_path):
        assert folders(tmp_path) == {key_of("a")}
    age(tmp_path, "a", 41 * DAY)
    async with Sessions(tmp_path):
        assert folders(tmp_path) == set()


async def test_a_kept_session_that_makes_room_for_another_stays_on_disk(tmp_path: Path) -> None:
    async with Sessions(tmp_path, keep=True, limit=1) as sessions:
        async with sessions.hold("a") as session:
            (session.path / "file").write_text("mine")
        async with sessions.hold("b"):
            assert len(sessions) == 1
        async with sessions.hold("a") as session:
            assert (session.path / "file").read_text() == "mine"


async def test_kept_sessions_of_earlier_hosts_grow_old_while_this_one_runs(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with Sessions(tmp_path, keep=True) as sessions, sessions.hold("a"):
        pass
    async with Sessions(tmp_path, keep=True, ttl=DAY):
        age(tmp_path, "a", 2 * DAY)
        await trio.sleep(2 * 3600)
        assert folders(tmp_path) == set()


@pytest.mark.parametrize(("option", "value"), [("ttl", 0), ("ttl", True), ("limit", 0), ("limit", -1)])
def test_an_option_that_means_nothing_is_refused(option: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=option):
        Sessions(tmp_path, **{option: value})


# -- what runs in them


def user_home(plan: Plan) -> Plan:
    return attrs.evolve(plan, workplace=attrs.evolve(plan.workplace, home="user"))


async def test_the_next_call_goes_on_with_the_conversation_of_its_own_command_line(tmp_path: Path) -> None:
    plan, other = user_home(spoken_plan()), plan_of(tmp_path)
    async with Sessions(tmp_path / "root") as sessions:
        async with sessions.hold("a") as session:
            assert (await session.run(plan, "hi")).text == "1: hi"
        async with sessions.hold("a") as session, sessions.hold("b") as unlike:
            launch = session.plan(plan).launch
            assert (launch.resume, launch.persist) == ("s", True)
            assert session.plan(plan).workplace.cwd == session.path
            assert session.plan(user_home(other)).launch.resume is None
            assert unlike.plan(plan).launch.resume is None
        async with sessions.hold() as alone:
            assert alone.plan(plan).launch.persist is None


async def test_a_conversation_that_is_lost_begins_anew_once_and_one_that_is_owned_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = user_home(spoken_plan())
    asked: list[str | None] = []

    async def refused(plan: Plan, prompt: str, *, timeout: float | None) -> Answer:
        asked.append(plan.launch.resume)
        if plan.launch.resume is not None:
            raise StartRefused("agent", "no such conversation", resumed=plan.launch.resume)
        return Answer(agent="agent", outcome="ok", session_id="new")

    async def owned(plan: Plan, prompt: str, *, timeout: float | None) -> Answer:
        raise SessionOwned("agent", plan.launch.resume or "", 1, "other")

    async with Sessions(tmp_path) as sessions, sessions.hold("a") as session:
        session.remember(plan, Answer(agent="x", outcome="ok", session_id="old"))
        with pytest.raises(SessionOwned):
            await session.run(plan, "hi", by=owned)
        await session.run(plan, "hi", by=refused)
        assert (asked, session.conversation(plan)) == (["old", None], "new")
    assert [r.getMessage() for r in caplog.records] == ["session 'a' begins anew: its CLI has lost old"]


@pytest.mark.parametrize("keep", [True, False])
async def test_sessions_are_listed_and_an_idle_one_is_removed_with_all_that_is_in_it(
    keep: bool, tmp_path: Path, autojump_clock: MockClock
) -> None:
    root = tmp_path / "root"
    async with Sessions(root, ttl=math.inf, keep=keep) as sessions:
        async with sessions.hold("old"), sessions.hold(None):
            pass
        await trio.sleep(5)
        async with sessions.hold("new") as session:
            (session.path / "x").write_text("x")
            assert [(f.id, f.users, f.idle) for f in sessions.facts()] == [("old", 0, 5.0), ("new", 1, 0.0)]
            with pytest.raises(SessionBusy, match="it is in use"):
                await sessions.remove("new")
        assert [await sessions.remove("new") for _ in range(2)] == [True, False]
        assert folders(root) == {key_of("old")}
    async with Sessions(root, ttl=math.inf, keep=keep) as sessions:  # kept ones are on disk alone now
        assert [await sessions.remove("old") for _ in range(2)] == [keep, False]
        assert (sessions.facts(), folders(root)) == ((), set())
    with pytest.raises(SessionsClosed, match="not open"):
        await sessions.remove("old")


@pytest.mark.covers("R129", "R134")
async def test_a_process_works_in_its_sessions_directory_and_resumes_its_conversation(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    (home / ".config").mkdir(parents=True)
    (home / ".config" / "settings.json").write_text("{}")
    before = [*everything(home)]
    env = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(tmp_path / "state")}
    plan = user_home(plan_of(tmp_path, [{"reply": "turn {turn} in {cwd}"}], env=env))
    async with Sessions(tmp_path / "root") as sessions:
        said = [await _said(sessions, plan) for _ in range(2)]
    [path] = {path for _, path in said}
    assert [text for text, _ in said] == [f"turn 1 in {path}", f"turn 2 in {path}"]
    assert [*everything(home)] == before


async def _said(sessions: Sessions, plan: Plan) -> tuple[str, str]:
    async with sessions.hold("a") as session:
        answer = await session.run(plan, "hi", by=ask)
        return answer.text, str(session.path)
