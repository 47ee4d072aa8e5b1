"""The screens of `proctor top` as texts: what is drawn of a fleet in a terminal of some size after some keys.

`python -m tests.proctor.top_screens` writes them anew, with the picture of the documentation. A change of one is a change of what users see: read the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
from textual.pilot import Pilot

from proctor.cli.top.app import TopApp
from tests.proctor.top_records import (
    AGENTS,
    COLOUR,
    DIFF,
    EVENTS,
    NOW,
    QUESTION,
    TREE,
    Recorded,
    agent,
    approval,
    board_of,
    crowd,
)

FOLDER = Path(__file__).with_name("screens")
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "top.svg"


@attrs.frozen
class Screen:
    """A fleet, the size of a terminal, and the keys that are pressed in it."""

    columns: int
    lines: int
    keys: Sequence[str] = ()
    source: Callable[[], Recorded] = Recorded

    async def show(self) -> tuple[str, Recorded]:
        """Its text, and the source with what was sent to it."""
        source = self.source()
        app = TopApp(source, now=lambda: NOW)
        async with shown(app, self.columns, self.lines) as pilot:
            await pilot.press(*self.keys)
            app.draw()
            await pilot.pause()
            return text_of(app), source


@asynccontextmanager
async def shown(app: TopApp, columns: int, lines: int) -> AsyncGenerator[Pilot[None]]:
    """Run the application in a terminal of this size, and begin when it has drawn its fleet."""
    async with app.run_test(size=(columns, lines)) as pilot:
        await pilot.pause()
        app.draw()
        yield pilot


async def all_texts() -> Mapping[str, str]:
    """The texts of all screens; they are shown side by side, as each waits for its own most of the time."""
    texts = await asyncio.gather(*(screen.show() for screen in SCREENS.values()))
    return dict(zip(SCREENS, (text for text, _ in texts), strict=True))


def text_of(app: TopApp) -> str:
    """The screen as text; what stands at the end of a line without being seen is left out."""
    strips = app.screen._compositor.render_strips()
    return "".join(f"{''.join(segment.text for segment in strip).rstrip()}\n" for strip in strips)


def nested() -> Recorded:
    """A fleet with a supervisor in it."""
    return Recorded(board_of(tree=TREE))


def forty() -> Recorded:
    """A fleet that has more agents than a terminal has lines."""
    return Recorded(board_of(crowd(40)))


def edits() -> Recorded:
    """An agent that asks to edit a file."""
    edit = approval("fixer", tool="Edit", input={"file_path": "src/session.py"}, diff=DIFF)
    return Recorded(board_of(approvals=[edit]), EVENTS)


def questions() -> Recorded:
    """An agent that asks its user."""
    return Recorded(
        board_of(
            approvals=[approval("fixer", tool="AskUserQuestion", question=QUESTION, questions=[QUESTION])]
        )
    )


def two_questions() -> Recorded:
    """An agent that asks its user two things at once."""
    both = approval("fixer", tool="AskUserQuestion", question=QUESTION, questions=[QUESTION, COLOUR])
    return Recorded(board_of(approvals=[both]))


def lost() -> Recorded:
    """A fleet whose host has ended."""
    board = board_of()
    board.put_trouble(
        "the host of fleet 'demo' (process 4242) has ended; start the fleet again with proctor up"
    )
    return Recorded(board)


def bare() -> Recorded:
    """A fleet of a host that says of its agents only what every host says."""
    known = ("name", "path", "state", "evidence", "unresponsive", "not_recorded", "pid", "session_id", "model", "queued",
             "until", "turns", "cost_usd", "since", "restarts", "last_exit", "approvals")  # fmt: skip
    return Recorded(board_of([{name: one[name] for name in known} for one in AGENTS]))


def hostile() -> Recorded:
    """Agents with wide letters, and with controls of a terminal in what they say."""
    said = agent(
        "wide", "working", activity="書く \x1b[31mred\u202e and\nmore" + " 長い" * 40, model="模型-十四"
    )
    return Recorded(board_of([said, agent("x" * 60, "failed", evidence="\x07 bell")]))


SCREENS: Mapping[str, Screen] = {
    "fleet-60x20": Screen(60, 20),
    "fleet-80x24": Screen(80, 24),
    "fleet-120x30": Screen(120, 30, ("down",)),
    "fleet-200x60": Screen(200, 60, source=nested),
    "tree-100x20": Screen(100, 20, ("down", "down", "down"), nested),
    "crowd-80x24": Screen(80, 24, source=forty),
    "crowd-end-80x24": Screen(80, 24, ("end",), forty),
    "filter-80x20": Screen(80, 20, ("slash", *"work", "enter"), forty),
    "filtering-60x20": Screen(60, 20, ("slash", *"usage")),
    "diff-100x40": Screen(100, 40, ("enter",), edits),
    "diff-60x20": Screen(60, 20, ("enter",), edits),
    "question-100x30": Screen(100, 30, ("enter", "2"), questions),
    "restarted-100x30": Screen(100, 30, ("down", "down", "enter")),
    "deny-80x20": Screen(80, 20, ("d", *"not there")),
    "stop-80x20": Screen(80, 20, ("end", "s")),
    "lost-80x20": Screen(80, 20, source=lost),
    "help-80x30": Screen(80, 30, ("question_mark",)),
    "bare-120x20": Screen(120, 20, source=bare),
    "hostile-80x10": Screen(80, 10, source=hostile),
}  # fmt: skip


def stored(name: str) -> Path:
    """The file of a screen."""
    return FOLDER / f"{name}.txt"


async def picture() -> str:
    """The picture for the documentation."""
    app = TopApp(Recorded(), now=lambda: NOW)
    async with shown(app, 120, 14) as pilot:
        await pilot.pause()
        return app.export_screenshot(title="proctor top")


def main() -> None:
    """Write all screens anew, and the picture."""
    PICTURE.write_text(asyncio.run(picture()), encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    for name, text in asyncio.run(all_texts()).items():
        stored(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
