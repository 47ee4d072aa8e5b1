"""The application of `proctor top`: what its keys do, and when it draws.

It draws at most ten times a second, and at once for a key. Requests go out in threads of the source, so no host holds it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import attrs
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.events import Key, Resize
from textual.widgets import Input, Static

from proctor.actors.durations import duration
from proctor.cli.top.board import Frame, Record, Row, row_of
from proctor.cli.top.cells import dollars, head, limits, short_count
from proctor.cli.top.detail import Answers, detail
from proctor.cli.top.feed import Source
from proctor.cli.top.table import AgentTable
from proctor.cli.ui.need import AT_REST
from proctor.cli.ui.text import one_line

TICK = 0.1
"""Seconds between two looks for something to draw."""
SHOWN = 8.0
"""Seconds for which the result of a request is shown."""
WIDE = 500


@attrs.frozen
class Action:
    """What a key does, as a method of the application, and its help."""

    method: str
    help: str
    short: str = ""


KEYS: Mapping[str, Action] = {
    "up": Action("", "the agent above; also k, page up and home"),
    "down": Action("", "the agent below; also j, page down and end"),
    "enter": Action("open_agent", "what is known of the agent, its open question first", "detail"),
    "?": Action("show_help", "this help", "help"),
    "q": Action("quit_view", "leave; the fleet goes on", "quit"),
    "escape": Action("go_back", "back to the fleet; in the fleet, show all agents again"),
    "a": Action("approve", "allow the tool that the agent asks for", "approve"),
    "A": Action("approve_always", "allow that tool for the rest of the session, where its command line can"),
    "d": Action("deny", "deny it, with a reason for the model", "deny"),
    "1-9": Action("answer", "in the detail: answer a question"),
    "m": Action("send_message", "queue a prompt for the agent", "message"),
    "i": Action("interrupt", "end its running turn; the session continues", "interrupt"),
    "s": Action("stop", "stop it, after y; it stays down until r", "stop"),
    "r": Action("restart", "restart it, after y; starts one that is down", "restart"),
    "p": Action("park", "hold it back, with a reason: its turn goes on, no other one begins"),
    "u": Action("unpark", "let it go"),
    "e": Action("extend", "put off the deadline of what it asks"),
    "/": Action("filter", "show the agents with these words in name, state, program or work", "filter"),
}
"""What the keys do."""
_ALIASES: Mapping[str, str] = {
    "k": "up", "j": "down", "slash": "/", "question_mark": "?", "upper_a": "A", "ctrl+c": "q",
}  # fmt: skip
_STEPS: Mapping[str, Callable[[int], int]] = {
    "up": lambda page: -1,
    "down": lambda page: 1,
    "pageup": lambda page: -page,
    "pagedown": lambda page: page,
    "home": lambda page: -(10**6),
    "end": lambda page: 10**6,
}
Mode = Literal["fleet", "agent", "help"]


class TopApp(App[None]):
    """The view of one fleet. `now` gives Unix seconds."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; }
    #head { height: 2; }
    #titles { height: 1; text-style: bold underline; }
    #pane { height: 1fr; display: none; scrollbar-size: 0 0; }
    #status { height: 1; }
    #keys { height: 1; color: $text-muted; }
    #entry { height: 1; display: none; }
    #label { width: auto; text-style: bold; }
    #input { width: 1fr; border: none; height: 1; padding: 0; background: $surface; }
    """

    def __init__(self, source: Source, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._source = source
        self._now = now
        self._mode: Mode = "fleet"
        self._frame = Frame()
        self._drawn: tuple[int, int] | None = None
        self._pattern = ""
        self._opened = ""
        self._answers = Answers()
        self._message: tuple[str, bool, float] | None = None
        self._confirm: Callable[[], None] | None = None
        self._entered: Callable[[str], None] | None = None
        self._table = AgentTable()
        self._texts: dict[str, Text] = {}

    def compose(self) -> ComposeResult:
        """The parts of the screen, from above."""
        yield Static(id="head")
        yield Static(id="titles")
        yield self._table
        with VerticalScroll(id="pane", can_focus=False):
            yield Static(id="text")
        yield Static(id="status")
        yield Static(id="keys")
        with Horizontal(id="entry"):
            yield Static(id="label")
            yield Input(id="input", disabled=True)

    def on_mount(self) -> None:
        """Begin to follow the fleet."""
        self._source.start()
        self.set_interval(TICK, self._look)

    def on_unmount(self) -> None:
        """Follow it no more."""
        self._source.close()

    # -- drawing

    def _look(self) -> None:
        # the clock of its own: ages and silences grow also when nothing comes
        state = (self._source.board.version, int(self._now()))
        if state != self._drawn:
            self._drawn = state
            self.draw()

    def on_resize(self, event: Resize) -> None:
        """Draw for the new size, when the parts have theirs."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw what is known now."""
        now, last = self._now(), self._frame
        self._frame = self._source.board.frame(now, self._pattern)
        if self._frame.trouble and not last.trouble:
            self._message = None
        elif last.trouble and not self._frame.trouble:
            pid = self._frame.fleet["pid"]
            is_same = pid == last.fleet.get("pid")
            self._say(f"the host {'answers again' if is_same else 'is back'}: process {pid}")
        self._table.show(self._frame.rows, now)
        self._update("#head", self._head(now))
        self._update("#titles", Text(self._table.titles, no_wrap=True, overflow="crop"))
        if self._mode == "agent":
            self._draw_agent(now)
        self._update("#status", self._status(now))
        self._update("#keys", self._keys())

    def _update(self, selector: str, text: Text) -> None:
        """Show a text of one line or two, if it is another one."""
        if text != self._texts.get(selector):
            self._texts[selector] = text
            # at the end of the program its parts go one by one, and the clock still ticks
            for part in self.query(selector).results(Static):
                part.update(text, layout=False)

    def _part(self, selector: str) -> Static:
        return self.query_one(selector, Static)

    def _head(self, now: float) -> Text:
        frame, width = self._frame, self.size.width
        name = str(frame.fleet.get("fleet", ""))
        first = Text.assemble((f" {name} ", "bold reverse"), f" {head(frame.fleet, now)}", no_wrap=True)
        first.truncate(width, overflow="ellipsis")
        second = Text(no_wrap=True)
        if frame.trouble:  # in place of counts that hold no more
            second.append(one_line(f"✗ {frame.trouble}", width), "bold red")
        for text, style in () if frame.trouble else self._facts(now):
            part = f"{' · ' if second else ''}{text}"
            if len(second) + len(part) <= width:
                second.append(part, style)
        return Text("\n").join((first, second))

    def _facts(self, now: float) -> Sequence[tuple[str, str]]:
        """What the head says of the agents; what comes last gives way first."""
        frame = self._frame
        waiting = sum(agent["approvals"] > 0 for agent in frame.agents.values())
        running = sum(agent["pid"] is not None for agent in frame.agents.values())
        failed, parked = frame.count("failed", "stalled"), frame.count("parked")
        facts = [
            (f"{waiting} need{'s' if waiting == 1 else ''} you" if waiting else "", "bold yellow"),
            (f"agents {running}/{len(frame.agents)} running", ""),
            (f"{failed} failed" if failed else "", "red"),
            (f"{parked} parked" if parked else "", "yellow"),
            (_spent(frame), ""),
            *((limit, "yellow") for limit in limits(frame.fleet, now)),
        ]
        if frame.tokens_per_second is not None:
            facts.append((f"{short_count(frame.tokens_per_second)} tokens/s", ""))
        return [fact for fact in facts if fact[0]]

    def _draw_agent(self, now: float) -> None:
        row = self._row(self._opened)
        text = Text(f"{self._opened} is no longer in the fleet") if row is None else detail(
            row, self._frame, self._source.events(), self._answers, now
        )  # fmt: skip
        self._part("#text").update(text)

    def _row(self, name: str) -> Row | None:
        agent = self._frame.agents.get(name)
        return None if agent is None else row_of(agent, self._frame.approvals)

    def _status(self, now: float) -> Text:
        if self._message is not None and now - self._message[2] < SHOWN:
            text, is_error, _ = self._message
            return Text(
                one_line(text, WIDE), "bold red" if is_error else "bold", no_wrap=True, overflow="ellipsis"
            )
        parts = [f"filter {self._pattern!r}: {self._count()}"] if self._pattern else []
        if self._mode == "fleet":
            parts += _hidden("↑", "above", self._table.above) + _hidden("↓", "below", self._table.below)
        return Text(" · ".join(parts), "dim", no_wrap=True, overflow="ellipsis")

    def _count(self) -> str:
        return f"{sum(bool(row.record) for row in self._frame.rows)} of {len(self._frame.agents)}"

    def _keys(self) -> Text:
        shown = [f"{key} {action.short}" for key, action in KEYS.items() if action.short]
        if self._mode != "fleet":
            shown[0] = "esc back"
        return Text("  ".join(shown), no_wrap=True, overflow="ellipsis")

    # -- keys

    def on_key(self, event: Key) -> None:
        """Do what the key is for."""
        if self._entered is not None:
            if event.key in ("escape", "ctrl+c"):
                self._end_entry()
            return
        event.stop()
        if self._confirm is not None:
            self._confirmed(event.key)
            return
        self._message = None
        key = _ALIASES.get(event.key, event.key)
        if key in _STEPS:
            self._move(key)
        elif len(key) == 1 and key.isdigit():
            self.answer(int(key))
        elif (action := KEYS.get(key)) is not None and action.method:
            getattr(self, action.method)()
        self.draw()

    def action_help_quit(self) -> None:
        """Leave, as Ctrl-C does elsewhere."""
        self.quit_view()

    def _confirmed(self, key: str) -> None:
        confirm, self._confirm = self._confirm, None
        self._message = None
        if key == "y" and confirm is not None:
            confirm()
        self.draw()

    def _move(self, key: str) -> None:
        if self._mode == "fleet":
            self._table.move(_STEPS[key](max(1, self._table.size.height - 1)))
            return
        pane = self.query_one("#pane", VerticalScroll)
        step = _STEPS[key](max(1, pane.size.height - 1))
        pane.scroll_to(y=max(0, pane.scroll_offset.y + step), animate=False)

    def open_agent(self) -> None:
        """Show what is known of the agent at the cursor; a second time, answer with what is marked."""
        row = self._target()
        if self._mode == "agent" and row is not None and self._answers.marked:
            self._give(row, *sorted(self._answers.marked))
        elif self._mode == "fleet" and row is not None:
            self._opened, self._answers = row.name, Answers()
            self._source.watch(row.name)
            self._show("agent")

    def on_agent_table_opened(self) -> None:
        """Show what is known of the agent that was clicked."""
        self.open_agent()

    def show_help(self) -> None:
        """Show what the keys do."""
        lines = [Text(f"{key:<7}  {action.help}") for key, action in KEYS.items()]
        notes = [
            Text(""),
            Text("● its process lives    ○ it has none"),
            Text("The order: needs you, failed, parked, working, idle, stopped."),
        ]
        self._part("#text").update(Text("\n").join([*lines, *notes]))
        self._show("help")

    def go_back(self) -> None:
        """Show the fleet; where it is shown, all of it."""
        if self._mode == "fleet":
            self._pattern = ""
        self._source.watch(None)
        self._show("fleet")

    def _show(self, mode: Mode) -> None:
        self._mode = mode
        self._table.display = self._part("#titles").display = mode == "fleet"
        pane = self.query_one("#pane", VerticalScroll)
        pane.display = mode != "fleet"
        pane.scroll_home(animate=False)
        # a part that was hidden has its size only then
        self.call_after_refresh(self.draw)

    def quit_view(self) -> None:
        """Leave."""
        self.exit()

    # -- requests

    def _target(self) -> Row | None:
        """The agent that a request is about, as it was drawn last: what came since, nobody has seen."""
        return self._row(self._opened) if self._mode == "agent" else self._table.selected

    def _post(self, row: Row, rest: str, body: Record | None = None) -> None:
        self._source.post(row.name, rest, body, self._report)

    def _report(self, text: str, is_error: bool) -> None:
        self._message = text, is_error, self._now()
        self._source.board.touch()

    def _say(self, text: str) -> None:
        self._message = text, False, self._now()

    def approve(self) -> None:
        """Allow the tool that the agent asks for."""
        self._decide_open("allow")

    def approve_always(self) -> None:
        """Allow it for the rest of the session."""
        row = self._target()
        if row is not None and row.asks is not None and "always" not in row.asks.get("choices", ()):
            self._say(f"{row.name}: this one cannot be allowed for the rest of the session; a allows it once")
        else:
            self._decide_open("always")

    def deny(self) -> None:
        """Deny it, with a reason."""
        if (row := self._asking()) is not None:
            then = partial(self._deny_with, row)
            self._enter(f"deny {row.name}, because (may be empty): ", then)

    def _deny_with(self, row: Row, reason: str) -> None:
        self._decide(row, "deny", message=reason)

    def answer(self, number: int) -> None:
        """Give the answer of this number; where several may be given, mark it."""
        row = self._target()
        if (question := self._question(row)) is None or row is None:
            return
        labels = [option["label"] for option in question["options"]]
        if not 0 < number <= len(labels):
            return
        if question["multiple"]:
            self._answers.marked ^= {labels[number - 1]}
        else:
            self._give(row, labels[number - 1])

    def _question(self, row: Row | None) -> Record | None:
        """The question that the detail shows."""
        if self._mode != "agent" or row is None or row.asks is None:
            return None
        return self._answers.question(row.asks)

    def _give(self, row: Row, *answers: str) -> None:
        """Answer the question that is shown; after the last one, send all answers."""
        if row.asks is None or self._question(row) is None:
            return
        if len(row.asks["questions"]) == 1:
            self._decide(row, "allow", answers=answers)
            return
        self._answers.given.append(", ".join(answers))
        self._answers.marked.clear()
        if self._question(row) is None:
            self._decide(row, "allow", answers=tuple(self._answers.given))

    def _decide_open(self, decision: str) -> None:
        row = self._asking()
        if row is None or row.asks is None:
            return
        if row.asks.get("questions"):
            self._say(f"{row.name} asks a question: enter shows it, a number answers it")
        else:
            self._decide(row, decision)

    def _asking(self) -> Row | None:
        row = self._target()
        if row is not None and row.asks is None:
            self._say(f"{row.name} asks for nothing")
            return None
        return row

    def _decide(self, row: Row, decision: str, **more: object) -> None:
        assert row.asks is not None
        self._answers = Answers()
        self._post(row, f"approvals/{row.asks['id']}", {"decision": decision, **more})

    def send_message(self) -> None:
        """Queue a prompt, or answer a question in words."""
        row = self._target()
        if row is None:
            return
        if self._question(row) is not None:
            self._enter(f"answer to {row.name}: ", lambda text: self._give(row, text))
        else:
            self._enter(f"message to {row.name}: ", lambda text: self._queue(row, text))

    def _queue(self, row: Row, text: str) -> None:
        if text.strip():
            self._post(row, "queue", {"prompt": text})

    def interrupt(self) -> None:
        """End the running turn."""
        if (row := self._target()) is not None:
            self._post(row, "interrupt")

    def park(self) -> None:
        """Hold the agent back, with a reason."""
        if (row := self._target()) is not None:
            self._enter(f"park {row.name}, because (may be empty): ", partial(self._park, row))

    def _park(self, row: Row, reason: str) -> None:
        self._post(row, "park", {"reason": reason.strip()})

    def unpark(self) -> None:
        """Let the agent go."""
        if (row := self._target()) is not None:
            self._post(row, "unpark")

    def extend(self) -> None:
        """Put off the deadline of the open approval."""
        if (row := self._asking()) is not None:
            self._enter(
                f"how long is {row.name} given from now on, such as 30m: ", partial(self._extend, row)
            )

    def _extend(self, row: Row, time: str) -> None:
        try:
            seconds = duration(time.strip())
        except ValueError as error:
            self._say(str(error))
            return
        if row.asks is not None:
            self._post(row, f"approvals/{row.asks['id']}/deadline", {"seconds": seconds})

    def stop(self) -> None:
        """Stop the agent, when that is confirmed."""
        self._ask_first("stop")

    def restart(self) -> None:
        """Restart the agent, when that is confirmed; start one that is down."""
        row = self._target()
        self._ask_first("start" if row is not None and row.state == "stopped" else "restart")

    def _ask_first(self, verb: str) -> None:
        if (row := self._target()) is not None:
            busy = "" if row.state in AT_REST else " Its turn ends."
            self._say(f"{verb} {row.name}?{busy} y: yes, any other key: no")
            self._confirm = partial(self._post, row, verb)

    # -- words

    def filter(self) -> None:
        """Show the agents with some words only."""
        self._show("fleet")
        self._enter("filter: ", self._set_pattern, self._pattern)

    def _set_pattern(self, text: str) -> None:
        self._pattern = text.strip()

    def _enter(self, label: str, then: Callable[[str], None], text: str = "") -> None:
        """Have a line typed, and call `then` with it."""
        self._entered = then
        self._part("#label").update(Text(label))
        self._part("#keys").display = False
        self.query_one("#entry").display = True
        entry = self.query_one(Input)
        entry.disabled, entry.value = False, text
        entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """A filter works as it is typed."""
        if self._entered == self._set_pattern:
            self._set_pattern(event.value)
            self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the line."""
        then = self._entered
        self._end_entry()
        if then is not None:
            then(event.value)
        self.draw()

    def _end_entry(self) -> None:
        self._entered = None
        entry = self.query_one(Input)
        entry.disabled, entry.value = True, ""
        self.set_focus(None)
        self.query_one("#entry").display = False
        self._part("#keys").display = True


def _spent(frame: Frame) -> str:
    today, cap = frame.fleet.get("cost_today_usd"), frame.fleet.get("cost_cap_usd")
    known = [cost for agent in frame.agents.values() if (cost := agent.get("cost_today_usd")) is not None]
    spent = sum(known) if known else today
    if spent is None:
        return ""
    return f"{dollars(spent)}{f' of {dollars(cap)}' if cap else ''} today"


def _hidden(arrow: str, where: str, rows: Sequence[Row]) -> list[str]:
    """How many agents are beyond the screen, and how many of them need somebody."""
    if not rows:
        return []
    waiting = sum(row.state == "blocked" for row in rows)
    return [f"{arrow} {len(rows)} {where}{f', {waiting} of them need you' if waiting else ''}"]
