"""OpenCode's one-shot mode, `opencode run --format json`: one prompt on stdin, events until the process leaves.

Guarantees: `read` raises on no bytes. The turn begins with the first line. It ends well only with a step whose reason
says that the answer is whole; a run that leaves without one, whatever its exit status, has not ended its turn, and so
has no answer (an unanswered permission, a tool that was cut off). Tokens and costs are those of all its steps.

An answer of the model without a finish reason makes OpenCode call it again at once and for ever. After `FRUITLESS`
such steps in a row the turn fails; the host then ends the process that does not leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import msgspec

from proctor.protocols.acp import HONOURED, ignored
from proctor.protocols.attachment import files, is_picture_or_pdf
from proctor.protocols.causes import STATUSES, cause_of
from proctor.protocols.dialect import Command, Dialect, Launch, Memo, OpenTurn, Out, StopStep, Used
from proctor.protocols.lenient import UNKEPT, Refusal, recovered
from proctor.protocols.opencode.launch import configuration, environment
from proctor.protocols.opencode.wire import Error, Line, Part
from proctor.protocols.turns import begin_turn, end_turn, write_text
from proctor.protocols.vocabulary import (
    AnyEvent,
    Ending,
    Garbled,
    Notice,
    Started,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unrecognized,
    Usage,
)

FRUITLESS = 8
"""Steps in a row without a finish reason until the run is given up."""

REASONS: Mapping[str, Ending | None] = {
    "stop": "completed",
    "length": "error",
    "content-filter": "model_refused",
    "error": "api_error",
    "tool-calls": None,
    "unknown": None,
    "other": None,
}
"""Finish reason of a step → what ended the turn; None where another step has to follow."""

WORDS: Mapping[str, str] = {
    "length": "the answer was cut at the limit of tokens",
    "content-filter": "the model's answer was withheld by a filter",
    "error": "the model's API failed",
}

_HONOURED = HONOURED | {"allowed_tools", "disallowed_tools", "attachments"}

FLAGS: Mapping[str, str] = {
    "model": "--model",
    "resume": "--session",
    "permission_mode": "--agent",
    "effort": "--variant",
}

_decode = msgspec.json.Decoder(Line).decode


@attrs.define
class Sum:
    """The sum of the steps of a run. `gap`: the last text was too long to be read."""

    steps: int = 0
    fruitless: int = 0
    text: str | None = None
    gap: bool = False
    cost: float | None = None
    tokens: Usage = attrs.field(factory=Usage)

    def add(self, part: Part) -> None:
        """Count one step more."""
        self.steps += 1
        self.tokens += part.tokens.usage
        if part.cost is not None:
            self.cost = (self.cost or 0.0) + part.cost

    @property
    def usage(self) -> Usage | None:
        """The tokens, None where none were counted."""
        return self.tokens if any(msgspec.structs.astuple(self.tokens)) else None


def launch(options: Launch) -> Command:
    """The command line; the prompt comes by stdin, as an argument would be seen by every user of the machine."""
    values = ((flag, getattr(options, field)) for field, flag in FLAGS.items())
    flags = [f"{flag}={value}" for flag, value in values if value is not None]
    if options.fork and options.resume is not None:
        flags.append("--fork")
    if options.partial:
        flags.append("--thinking")
    flags += [f"--file={options.scratch}/{name}" for name in files(options.attachments)]
    argv = (*options.executable, "run", "--format=json", *flags, *options.extra)
    return Command(
        argv=argv,
        env=environment(options),
        joined=configuration(options, options.mcp),
        files=files(options.attachments),
        ignored=ignored(options, _HONOURED),
    )


def read(memo: Memo, line: bytes) -> Out:
    """The events of one line."""
    try:
        frame = _decode(line)
    except Refusal:
        return _read_odd(memo, line)
    return _read_line(memo, frame)


def _read_odd(memo: Memo, line: bytes) -> Out:
    if isinstance(read := recovered(memo, Line, line), Garbled):
        return (read,)
    frame, lost = read
    quiet = memo.quiet.copy()
    out = (*lost, *_read_line(memo, frame))
    if lost:
        memo.quiet = quiet  # a frame that gave an event is not quiet
    return out


def _read_line(memo: Memo, frame: Line) -> Out:
    reader = _LINES.get(frame.type)
    if reader is None:
        return (Unrecognized(memo.frame, memo.turn, frame.type or "untyped"),)
    started = _started(memo, frame.session)
    return (*started, *reader(memo, frame)) or memo.ignore(frame.type)


def _started(memo: Memo, session: str) -> list[AnyEvent]:
    out: list[AnyEvent] = []
    if session and session != memo.session_id:
        memo.session_id = session
        memo.model = memo.launch.model
        out.append(Started(memo.frame, memo.turn, session, model=memo.model, cwd=memo.launch.cwd or None))
    # `run` has no line for the beginning: any line is the first sign of the turn.
    if not memo.turns:
        out.append(begin_turn(memo, [*memo.prompts]))
    return out


def _sum(memo: Memo) -> Sum:
    state = memo.own.get("sum")
    if not isinstance(state, Sum):
        state = memo.own["sum"] = Sum()
    return state


def used(memo: Memo) -> Used:
    """The tokens and the cost of the steps so far."""
    total = _sum(memo)
    return total.usage, total.cost


def _read_text(memo: Memo, frame: Line) -> Out:
    if not frame.part.text:
        return ()
    total = _sum(memo)
    total.text, total.gap = (None, True) if memo.truncated else (frame.part.text, False)
    return (Text(memo.frame, memo.turn, frame.part.text),)


def _read_thought(memo: Memo, frame: Line) -> Out:
    return (Thinking(memo.frame, memo.turn, frame.part.text),) if frame.part.text else ()


def _read_tool(memo: Memo, frame: Line) -> Out:
    part, state = frame.part, frame.part.state
    call = part.call or f"frame{memo.frame}"  # a CLI may give no id; this one is unique in the run
    failed = state.status == "error"
    text = state.error if failed else state.output
    return (
        ToolCall(memo.frame, memo.turn, call, part.tool, state.input or {}),
        ToolResult(memo.frame, memo.turn, call, text, failed, duration=state.time.seconds),
    )


def _read_finish(memo: Memo, frame: Line) -> Out:
    part = frame.part
    total = _sum(memo)
    total.add(part)
    ending = REASONS.get(part.reason, "error")
    if ending is not None:
        return _end(memo, ending, part)
    # Only calls of a tool are progress: text without a finish reason makes the CLI ask again at once.
    total.fruitless = 0 if part.reason == "tool-calls" else total.fruitless + 1
    return _give_up(memo, part) if total.fruitless == FRUITLESS else ()


def _give_up(memo: Memo, part: Part) -> Out:
    text = f"{FRUITLESS} model calls in a row had no finish reason; the run would not end"
    notice = Notice(memo.frame, memo.turn, "endless_turn", text)
    return (notice, *_end(memo, "api_error", part, error=text))


def _end(memo: Memo, ending: Ending, part: Part, error: str | None = None) -> Out:
    total = _sum(memo)
    whole = part.reason in ("stop", "length")
    error = error or WORDS.get(part.reason) or (UNKEPT if whole and total.gap else None)
    return _closed(memo, ending, part.reason or None, error, text=total.text if whole else None)


def _read_error(memo: Memo, frame: Line) -> Out:
    error, data = frame.error, frame.error.data
    text = data.message or error.name or "error"
    return _closed(memo, _cause(error), error.name or None, text, status=data.status)


def _cause(error: Error) -> Ending:
    data = error.data
    by_text = cause_of(f"{data.message} {data.body or ''}")
    # A spent quota has the status 429, as a busy server has: only its text separates the two.
    if by_text == "limit":
        return by_text
    return STATUSES.get(data.status or 0, by_text)


def _closed(
    memo: Memo,
    ending: Ending,
    detail: str | None,
    error: str | None,
    *,
    text: str | None = None,
    status: int | None = None,
) -> Out:
    turn: OpenTurn | None = memo.open_turns[-1] if memo.open_turns else None
    if turn is None:  # given up before; what else comes is not believed
        return ()
    total = _sum(memo)
    ended = end_turn(
        memo,
        turn,
        ending,
        text=text,
        error=error,
        detail=detail,
        status=status,
        usage=total.usage,
        cost_usd=total.cost,
        model_turns=total.steps or None,
    )
    return (ended,)


_LINES: Mapping[str, Callable[[Memo, Line], Out]] = {
    "step_start": lambda memo, frame: (),
    "text": _read_text,
    "reasoning": _read_thought,
    "tool_use": _read_tool,
    "step_finish": _read_finish,
    "error": _read_error,
}

OPENCODE_RUN = Dialect(
    name="opencode",
    used=used,
    launch=launch,
    read=read,
    write=write_text,
    takes=is_picture_or_pdf,
    # No signal handlers in any mode: SIGTERM ends it at once, and SIGINT may be inherited as ignored.
    stop=(StopStep("terminate", 2.0), StopStep("kill", 0.0)),
    oldest=(1, 18, 33),
    newest_tested=(1, 18, 33),
    capabilities=dict.fromkeys(("resume", "fork", "cost", "host_tools"), (0, 0, 0)),
    relayed=frozenset({"oneshot"}),
)
"""The dialect of `opencode run`. It has no signal handlers and leaves its tools behind: the host ends those."""
