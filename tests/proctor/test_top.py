"""`proctor top`: its screens, what its keys do, and a real host that dies and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from proctor.cli.top.app import KEYS, TopApp
from proctor.cli.top.board import Board, Record
from proctor.cli.top.cells import short_count, short_time
from proctor.cli.ui.need import NEED, need
from tests.proctor.command import proctor
from tests.proctor.top_records import (
    AGENTS,
    FLEET,
    NOW,
    Recorded,
    agent,
    board_of,
)
from tests.proctor.top_screens import (
    SCREENS,
    Screen,
    all_texts,
    edits,
    forty,
    questions,
    shown,
    stored,
    text_of,
    two_questions,
)
from tests.tables import each_row


def test_the_screens_are_as_they_are_stored() -> None:
    texts = asyncio.run(all_texts())
    differing = [name for name, text in texts.items() if text != stored(name).read_text(encoding="utf-8")]
    assert not differing, f"python -m tests.proctor.top_screens\n{texts[differing[0]]}"


def test_a_screen_fits_its_terminal_and_keeps_the_states() -> None:
    for name, screen in SCREENS.items():
        lines = stored(name).read_text(encoding="utf-8").splitlines()
        assert len(lines) == screen.lines
        assert max(map(len, lines)) <= screen.columns
    narrow = stored("fleet-60x20").read_text(encoding="utf-8")
    assert all(
        state in narrow
        for state in ("needs you", "failed", "restarting", "parked", "working", "idle", "stopped")
    )


def test_every_key_has_its_help() -> None:
    text = stored("help-80x30").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"{key:<7}  {KEYS[key].help}" not in text] == []
    assert [one.method for one in KEYS.values() if one.method and not hasattr(TopApp, one.method)] == []


# -- what the keys send

Sent = tuple[str, str, Record | None]
ALLOWED: Sent = ("fixer", "approvals/q1", {"decision": "allow"})
KEYS_AND_REQUESTS: Sequence[
    tuple[Callable[[], Recorded], Sequence[tuple[tuple[str, ...], Sequence[Sent]]]]
] = (
    (
        Recorded,
        [
            (("a",), [ALLOWED]),
            (("A",), [("fixer", "approvals/q1", {"decision": "always"})]),
            (("d", *"no", "enter"), [("fixer", "approvals/q1", {"decision": "deny", "message": "no"})]),
            (("d", "n", "escape"), []),
            (("m", *"go", "enter"), [("fixer", "queue", {"prompt": "go"})]),
            (("m", "space", "enter"), []),
            (("down", "a"), []),
            (("p", *"rest", "enter"), [("fixer", "park", {"reason": "rest"})]),
            (("u",), [("fixer", "unpark", None)]),
            (("e", *"30m", "enter"), [("fixer", "approvals/q1/deadline", {"seconds": 1800.0})]),
            (("e", *"soon", "enter"), []),
            (("down", "e"), []),
            (("i",), [("fixer", "interrupt", None)]),
            (("s", "y"), [("fixer", "stop", None)]),
            (("s", "s", "y"), []),
            (("r", "y"), [("fixer", "restart", None)]),
            (("end", "r", "y"), [("old", "start", None)]),
            (("slash", *"usa", "enter", "i"), [("audit", "interrupt", None)]),
        ],
    ),
    (edits, [(("enter", "a"), [ALLOWED])]),
    (
        questions,
        [
            (("a",), []),
            (
                ("enter", "1", "3", "enter"),
                [("fixer", "approvals/q1", {"decision": "allow", "answers": ("none", "staging")})],
            ),
            (("enter", "9", "enter"), []),
            (
                ("enter", "m", *"any", "enter"),
                [("fixer", "approvals/q1", {"decision": "allow", "answers": ("any",)})],
            ),
        ],
    ),
    (
        two_questions,
        [
            (
                ("enter", "1", "2", "enter", "1"),
                [("fixer", "approvals/q1", {"decision": "allow", "answers": ("local, staging", "red")})],
            )
        ],
    ),
)


@each_row("source, rows", KEYS_AND_REQUESTS)
def test_what_the_keys_send(
    source: Callable[[], Recorded], rows: Sequence[tuple[tuple[str, ...], Sequence[Sent]]]
) -> None:
    async def requests() -> list[tuple[tuple[str, ...], Sequence[Sent]]]:
        used = source()
        found = list[tuple[tuple[str, ...], Sequence[Sent]]]()
        async with shown(TopApp(used, now=lambda: NOW), 80, 24) as pilot:
            for keys, _ in rows:
                before = len(used.sent)
                await pilot.press(*keys)
                found.append((keys, used.sent[before:]))
                await pilot.press("escape", "escape", "home")  # out of the detail, out of the filter
        return found

    assert asyncio.run(requests()) == list(rows)


def test_the_detail_reads_the_events_of_its_agent_and_no_longer() -> None:
    _, used = asyncio.run(Screen(80, 24, ("down", "enter", "escape")).show())
    assert used.watched == ["build", None]


# -- what changes while it is shown


def shown_after(change: Callable[[Board], None], *keys: str, source: Recorded) -> str:
    """The screen when something has changed after the keys."""

    async def show() -> str:
        app = TopApp(source, now=lambda: NOW)
        async with shown(app, 80, 24) as pilot:
            await pilot.press(*keys)
            change(source.board)
            app.draw()
            await pilot.pause()
            return text_of(app)

    return asyncio.run(show())


def test_the_cursor_stays_with_its_agent_when_another_needs_somebody() -> None:
    def change(board: Board) -> None:
        board.put("agent", agent("reader", "blocked", approvals=1))
        board.put("agent", agent("another", "blocked", approvals=1))

    text = shown_after(change, "down", source=Recorded())
    assert "▸○ build" in text
    assert text.index("another") < text.index("○ build")


def test_agents_that_need_somebody_below_the_screen_are_counted() -> None:
    text = shown_after(lambda board: None, "end", source=forty())
    assert "↑ 21 above, 5 of them need you" in text


def test_a_host_that_is_back_is_named_and_its_fleet_replaces_the_other() -> None:
    source = Recorded()
    source.board.put_trouble("the host has ended")

    def change(board: Board) -> None:
        board.put_snapshot({**FLEET, "pid": 5000, "agents": AGENTS[:2], "tree": None})

    text = shown_after(change, source=source)
    assert "the host is back: process 5000" in text
    assert "agents 2/2 running" in text
    assert "audit" not in text


def test_the_rate_of_tokens_is_that_of_the_last_seconds() -> None:
    board = board_of([agent("one", tokens=1000)])
    assert board.frame(NOW).tokens_per_second is None
    board.put("agent", agent("one", tokens=3000))
    assert board.frame(NOW + 2).tokens_per_second == 1000
    assert board.frame(NOW + 60).tokens_per_second == 0
    board.put("agent", agent("one", tokens=0))  # its host was started anew
    assert board.frame(NOW + 61).tokens_per_second == 0


def test_the_order_of_need_is_one_for_all_lists() -> None:
    assert sorted(NEED, key=need) == list(NEED)
    assert need("idle", approvals=1) == need("blocked") < need("failed")
    assert need("of a later version") == 0


@each_row(
    "seconds, text",
    [(-1, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7500, "2h05"), (90000, "Nov 17"), (40_000_000, "Aug 2025")],
)  # fmt: skip
def test_a_time_beyond_a_day_is_a_date(seconds: float, text: str) -> None:
    assert short_time(seconds, NOW) == text


@each_row(
    "number, text",
    [(0, "0"), (999, "999"), (9_949, "9.9k"), (9_999, "10k"), (1.25e6, "1.2M"), (3e15, "3000T")],
)
def test_a_number_is_short(number: float, text: str) -> None:
    assert short_count(number) == text


# -- the command


def test_without_a_terminal_it_says_what_else_lists_the_agents(tmp_path: Path) -> None:
    ended = proctor("top", home=tmp_path)
    assert (ended.status, ended.complaint) == (
        2,
        "proctor: top needs a terminal; proctor ps lists the agents",
    )
