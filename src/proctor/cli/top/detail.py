"""What is known of one agent as a text: its open question first, then its last events, its restarts, and where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
from rich.text import Text

from proctor.actors.durations import format_moment
from proctor.cli.top.board import Frame, Record, Row
from proctor.cli.top.cells import DAY, context, doing, dollars, short_count, short_time, spent
from proctor.cli.ui.need import style_of, word_of
from proctor.cli.ui.text import one_line, printable, tool_use

WIDE = 4000
"""Characters of an input or an answer that are shown."""
_DIFF_STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "cyan"}


@attrs.define
class Answers:
    """What is chosen so far of the answers to an approval: `given` to its first questions, `marked` for the next one."""

    given: list[str] = attrs.field(factory=list[str])
    marked: set[str] = attrs.field(factory=set[str])

    def question(self, approval: Record) -> Record | None:
        """The question that comes next, None of a tool that asks none."""
        questions = approval.get("questions") or ()
        found: Record | None = questions[len(self.given)] if len(self.given) < len(questions) else None
        return found


def detail(row: Row, frame: Frame, events: Sequence[str], answers: Answers, now: float) -> Text:
    """The text about an agent, with what is chosen so far of its answers."""
    lines = [
        *_head(row, now),
        *_approvals(frame.approvals.get(row.name, ()), answers, now),
        *_section("last events", [Text(one_line(event, WIDE)) for event in events]),
        *_section("restarts", _restarts(row.record, now)),
        *_section("", _facts(row.record, now)),
    ]
    return Text("\n").join(lines)


def _section(title: str, lines: Sequence[Text]) -> Iterator[Text]:
    if lines:
        yield Text("")
        if title:
            yield Text(title, "bold")
        yield from (Text("  ").append_text(line) if title else line for line in lines)


def _head(row: Row, now: float) -> Iterator[Text]:
    agent, style = row.record, style_of(row.state)
    held = "" if agent["since"] is None else _held(now - agent["since"], now)
    process = f"● process {agent['pid']}" if agent["pid"] else "○ no process"
    yield Text.assemble((row.name, "bold"), "  ", (f"{word_of(row.state)}{held}", style), f"  {process}")
    if row.asks is None and (text := doing(row)):
        yield Text(one_line(text, WIDE), style)


def _held(seconds: float, now: float) -> str:
    return f" {'for' if seconds < DAY else 'since'} {short_time(seconds, now)}"


# -- the open question


def _approvals(approvals: Sequence[Record], answers: Answers, now: float) -> Iterator[Text]:
    for approval in approvals[:1]:
        yield Text("")
        yield from _approval(approval, answers, now)
    if len(approvals) > 1:
        yield Text(f"  {len(approvals) - 1} more wait behind it", "dim")


def _approval(approval: Record, answers: Answers, now: float) -> Iterator[Text]:
    left = f"  denied in {short_time(approval['ends'] - now, now)}"
    if (question := answers.question(approval)) is not None:
        yield from _question(question, approval, answers, left)
        return
    title = tool_use(approval["tool"], approval["input"], WIDE)
    yield Text.assemble((f"? {title}", "bold yellow"), (left, "dim"))
    if approval["description"] not in (None, approval["tool"]):
        yield Text(f"  {one_line(approval['description'], WIDE)}")
    for line in printable(approval.get("diff") or "").splitlines():
        yield Text(f"  {line}", _DIFF_STYLES.get(line[:1], ""))
    always = "A always" if "always" in approval.get("choices", ()) else ""
    yield _keys("a allow", always, "d deny, with a reason", "e more time")


def _question(question: Record, approval: Record, answers: Answers, left: str) -> Iterator[Text]:
    number, several = len(answers.given) + 1, len(approval["questions"])
    which = f"{number} of {several}: " if several > 1 else ""
    yield Text.assemble((f"? {which}{one_line(question['text'], WIDE)}", "bold yellow"), (left, "dim"))
    for number, option in enumerate(question["options"], 1):
        chosen = "✓ " if option["label"] in answers.marked else ""
        about = one_line(option["description"] or "")
        yield Text(f"  {number}  {chosen}{one_line(option['label'])}  {about}".rstrip())
    choose = "1-9 mark, enter answer" if question["multiple"] else "1-9 answer" if question["options"] else ""
    yield _keys(choose, "m answer in words", "d deny", "e more time")


def _keys(*keys: str) -> Text:
    return Text("  " + " · ".join(filter(None, keys)), "bold")


# -- the rest


def _restarts(agent: Record, now: float) -> Sequence[Text]:
    if not agent["restarts"]:
        return []
    started = agent.get("started")
    last = "" if started is None else f", the last {format_moment(started, now)}"
    return [
        Text(f"{agent['restarts']} by its supervisor{last}"),
        Text(one_line(agent["last_exit"] or "", WIDE), "red"),
    ]


def _facts(agent: Record, now: float) -> Sequence[Text]:
    used, window = agent.get("context_tokens"), agent.get("context_window")
    size = f" ({short_count(used)} of {short_count(window)})" if used and window else ""
    facts = {
        "program": ", ".join(filter(None, (agent.get("kind"), agent["model"]))),
        "context": f"{context(agent)}{size}",
        "tokens": short_count(agent["tokens"]) if agent.get("tokens") else "",
        "today": dollars(spent(agent)),
        "turns": f"{agent['turns']}, {agent['queued']} waiting" if agent["queued"] else str(agent["turns"]),
        "wakes": "" if agent["until"] is None else format_moment(agent["until"], now),
        "memory": f"{short_count(agent['memory'], 1024)}B" if agent.get("memory") else "",
        "session": agent["session_id"],
        "folder": agent.get("cwd"),
        "worktree": agent.get("worktree"),
        "recording": agent.get("recording") or agent["not_recorded"],
    }
    return [Text(f"{name:<9}  {one_line(value, WIDE)}") for name, value in facts.items() if value]
