"""The conversation with one CLI process: bytes in, events out; requests in, bytes out. One engine for every CLI.

Guarantees: no bytes of a CLI make it raise; only misuse by the host does, and then nothing is changed. Every line that is
not blank gives at least one event or is counted in `Memo.quiet`. The events do not depend on how the bytes were cut. Each
`TurnEnded` closes a `TurnStarted` with the same id. The order of events and requests is in the tables of `phases`.

After `error_budget` bad lines in a row a `Notice` reports it once and `exhausted` is set: nothing more is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import msgspec

from proctor.protocols.attachment import refuse_unsupported_attachments
from proctor.protocols.dialect import Dialect, Launch, Memo, Mode, Out, Phase, Run, Send, Used, parse_version
from proctor.protocols.errors import Misuse, UnknownApproval
from proctor.protocols.framing import MAX_LINE, Framing, Oversized, Place
from proctor.protocols.lenient import UNREAD, head, refuse_unread
from proctor.protocols.phases import CONTROL, EVENTS, REPLIES, REQUESTS, REST, STAYS
from proctor.protocols.stages import Validator, is_misshapen, refusal, refused
from proctor.protocols.vocabulary import (
    AnyEvent,
    AnyRequest,
    Decision,
    EndSession,
    Garbled,
    Misplaced,
    Notice,
    Prompt,
    Started,
    TextDelta,
    TurnEnded,
    TurnStarted,
    Unrecognized,
)

ERROR_BUDGET = 5
"""Bad lines in a row that end a conversation."""
LOG_LINE = 2**16
"""Longest line of a CLI's log that is read, in bytes."""


class Conversation:
    """Drives one dialect for the life of one process.

    `launch` is what the process was launched with, `mode` how. `resumed` says that its session has a past; `total_cost_usd` is what that
    past cost as far as the host knows (US dollars, None: not known). `prefix` begins the ids of its turns. Lines over `max_line` bytes are not delivered
    whole. `error_budget` None: there may be any number of bad lines. `validators` are asked in their order. Counters: `events` given,
    lines that were `garbled` or `misshapen`, `refused` events, `unrecognized` and `misplaced` parts of frames.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        launch: Launch | None = None,
        mode: Mode = "session",
        max_line: int = MAX_LINE,
        error_budget: int | None = ERROR_BUDGET,
        validators: Sequence[Validator] = (),
        resumed: bool = False,
        total_cost_usd: float | None = None,
        prefix: str = "t",
    ) -> None:
        self.dialect = dialect
        cost = total_cost_usd if resumed else 0.0
        options = launch or Launch(executable=(), mode=mode)
        self.memo = Memo(
            mode=options.mode, launch=options, resumed=resumed, total_cost_usd=cost, prefix=prefix
        )
        self.phase: Phase = "greeting"
        self.events = 0
        self.garbled = 0
        self.misshapen = 0
        self.refused = 0
        self.unrecognized = 0
        self.misplaced = 0
        self.exhausted = False
        self._framing = Framing(max_line)
        self._log_framing = Framing(LOG_LINE)
        self._read_lines = dialect.lines_reader
        self._read_delta = None if validators else dialect.read_delta
        self._error_budget = error_budget
        self._validators = tuple(validators)
        self._to_send: list[bytes] = []
        self._opened = False
        self._blank = 0
        self._bad_run = 0
        self._bad_frame: int = -1
        self._place = Place(0, 0, ())

    @property
    def frames(self) -> int:
        """Lines read so far that were not blank."""
        return self.memo.frame + 1 - self._blank

    def used(self) -> Used:
        """Usage and cost reported of the running turn so far; (None, None) while none runs."""
        return self.dialect.used(self.memo) if self.memo.open_turns else (None, None)

    @property
    def closes_stdin(self) -> bool:
        """Is stdin to be closed after the prompt? So in a one-shot run, which reads it to its end."""
        return self.memo.mode == "oneshot"

    def greet(self) -> bytes:
        """The first bytes to write, once; empty where the CLI needs none. Raises Misuse the second time."""
        # A second greeting would begin the handshake anew in the midst of a session.
        if self._opened:
            raise Misuse(
                f"the greeting was sent before (phase {self.phase!r})", request="greet", phase=self.phase
            )
        self._opened = True
        greeting = self.dialect.greet(self.memo)
        if not greeting:
            self.memo.greeted = True
            self.phase = self._rest()
        return greeting

    def data_to_send(self) -> bytes:
        """The replies that frames called for since the last time; to be written before anything else."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data

    def send(self, request: AnyRequest) -> bytes:
        """The bytes to write for a request. Raises Misuse, and remembers nothing, when it makes no sense now."""
        phase = REQUESTS[self.memo.mode][self.phase].get(type(request))
        if phase is None:
            raise self._misuse(
                request, f"cannot be sent in phase {self.phase!r} of a {self.memo.mode} conversation"
            )
        memo = self.memo
        is_plain = isinstance(request, Prompt) and not request.schema
        # a prompt with a new id and no schema passes without another look: each one comes here
        if not is_plain or request.id in memo.prompts or request.id in memo.pending:
            self._check_id(request)
        if isinstance(request, Prompt) and request.attachments:
            takes = partial(self.dialect.takes, memo)
            refuse_unsupported_attachments(self.dialect.name, request.attachments, takes)
        # First: it raises where the request makes no sense, and then nothing may have changed.
        data = self.dialect.write(memo, request)
        if isinstance(request, Prompt):
            memo.prompts.append(request.id)
        elif isinstance(request, Decision):
            del memo.approvals[request.id]
        elif isinstance(request, REPLIES):
            del memo.calls[request.id]
        self.phase = phase
        return data

    def forget(self, request: AnyRequest) -> None:
        """Undo the bookkeeping of a request whose bytes could not be written."""
        self.memo.pending.pop(request.id, None)
        if request.id in self.memo.prompts:
            self.memo.prompts.remove(request.id)
        # An `EndSession` that was not written: the conversation goes on where it was.
        if self.phase in ("idle", "working") or isinstance(request, EndSession):
            self.phase = self._rest()

    def receive(self, chunk: bytes) -> list[AnyEvent]:
        """The events of the lines that this chunk ends, in order. b"" is the end of the stream, and gives the rest.

        Raises Misuse for bytes after the end.
        """
        # Raised for bytes only: the end may be reported twice.
        if self.phase == "ended":
            if chunk:
                raise Misuse(
                    "bytes were received after the end of the stream", request="receive", phase="ended"
                )
            return []
        if (delta := self.receive_delta(chunk)) is not None:
            return [delta]
        start = self._framing.offset
        lines = self._framing.feed(chunk) if chunk else self._framing.end()
        self._place = Place(self.memo.frame + 1, start, lines)
        out: list[AnyEvent] = []
        self._read(lines, out, cut=not chunk)
        self.events += len(out)
        if not chunk:
            self.phase = "ended"
        return out

    def receive_delta(self, chunk: bytes) -> TextDelta | None:
        """The event of a chunk that is one line with one text delta, in place of `receive`; None, with nothing done, for any other.

        A CLI that streams writes line by line, so nearly every chunk of a fleet is one of these: what is for many lines, and for
        lines that change something, costs more than the event itself.
        """
        read, framing = self._read_delta, self._framing
        if (
            read is None
            or self.exhausted
            or TextDelta not in STAYS[self.phase]
            or not framing.is_one_line(chunk)
        ):
            return None
        if (delta := read(self.memo, chunk)) is not None:
            framing.fed += len(chunk)
            self.events += 1
        return delta

    def feed_stderr(self, chunk: bytes) -> list[AnyEvent]:
        """The events of the lines of its log, on stderr, that this chunk ends. To be fed before what came on stdout
        after it; none after the end of the stream."""
        read = self.dialect.read_log
        if read is None or self.exhausted or self.phase == "ended":
            return []
        out: list[AnyEvent] = []
        for line in self._log_framing.feed(chunk):
            for event in read(self.memo, line) if isinstance(line, bytes) else ():
                self._accept(event, out)
        self.events += len(out)
        return out

    def _read(self, lines: Sequence[bytes | Oversized], out: list[AnyEvent], *, cut: bool) -> None:
        append = cast("Callable[[AnyEvent | Send], None]", out.append)  # no `Send` has a class in `stays`
        for events in () if self.exhausted else self._read_frames(lines, out):
            if self._validators:
                events = self._validated(events)
            stays = STAYS[self.phase]
            # A run of deltas has one class and one place, so it needs no look at each.
            if isinstance(events, list) and TextDelta in stays:
                out += events
                continue
            for event in events:
                if event.__class__ in stays:
                    append(event)
                else:
                    self._accept(event, out, cut=cut)
                    stays = STAYS[self.phase]
            if events and events[0].__class__ is Unrecognized and is_misshapen(events):
                self.misshapen += 1
                self._count_bad(self.memo.frame, self.memo.turn, out)
            # The budget is spent in the midst of a chunk: what follows is not read any more.
            if self.exhausted:
                break
        if self.exhausted:
            self._pass_over(lines)

    def _pass_over(self, lines: Sequence[bytes | Oversized]) -> None:
        """Count the lines that are not read any more: they are in the recording."""
        rest = lines[self.memo.frame + 1 - self._place.first :]
        self._blank += sum(isinstance(line, bytes) and not line.strip() for line in rest)
        self.memo.frame += len(rest)

    def _validated(self, events: Run | Out) -> Run | Out:
        accepted: list[AnyEvent | Send] = []
        for event in events:
            why = refusal(event, self._validators)
            if why is None or isinstance(event, Send):
                accepted.append(event)
            else:
                self.refused += 1
                accepted += refused(event, why)
        return (
            events
            if len(accepted) == len(events) and all(map(operator.is_, accepted, events))
            else tuple(accepted)
        )

    def _read_frames(self, lines: Sequence[bytes | Oversized], out: list[AnyEvent]) -> Iterator[Run | Out]:
        # Long lines are rare: the others keep the fast way.
        if Oversized in map(type, lines):
            return self._read_one_by_one(lines, out)
        return self._read_lines(self.memo, cast("Sequence[bytes]", lines))

    def _read_one_by_one(
        self, lines: Sequence[bytes | Oversized], out: list[AnyEvent]
    ) -> Iterator[Run | Out]:
        for line in lines:
            if isinstance(line, bytes):
                yield from self._read_lines(self.memo, (line,))
            else:
                # The other reader counts its own lines; this one never reaches it.
                self.memo.frame += 1
                self._read_truncated(line, out)

    def _accept(self, event: AnyEvent | Send, out: list[AnyEvent], *, cut: bool = False) -> None:
        match event:
            case Send():
                self._to_send.append(event.data)
            case Garbled():
                self._accept_garbled(event, out, cut=cut)
            case Unrecognized():
                self.unrecognized += 1
                out.append(event)
            case Misplaced():
                self.misplaced += 1
                out.append(msgspec.structs.replace(event, phase=self.phase))
            case _:
                self._move(event, out)

    def _move(self, event: AnyEvent, out: list[AnyEvent]) -> None:
        cell = EVENTS[self.phase].get(type(event))
        if cell is None:
            self.misplaced += 1
            out.append(Misplaced(event.frame, event.turn, str(event.__struct_config__.tag), self.phase))
            return
        out.append(event)
        if isinstance(event, Started):
            out += self._remarks(event)
        self.phase = self._rest() if cell == REST else cell

    def _rest(self) -> Phase:
        memo = self.memo
        if not memo.greeted and not memo.turns:
            return "greeting"
        if memo.open_turns or memo.prompts:
            return "working"
        return "ending" if memo.mode == "oneshot" and memo.turns else "idle"

    def _accept_garbled(self, event: Garbled, out: list[AnyEvent], *, cut: bool) -> None:
        if self._place.is_blank(event.frame):
            self._blank += 1
            # A blank line neither is bad nor ends a row of bad ones.
            if self._bad_frame == event.frame - 1:
                self._bad_frame = event.frame
            return
        is_refused = event.reason == "refused"
        if not is_refused:
            self.garbled += 1
        reason = "cut" if cut and not is_refused else event.reason
        size = event.size or self._place.size(event.frame)
        offset = self._place.offset(event.frame)
        out.append(msgspec.structs.replace(event, offset=offset, size=size, reason=reason))
        self._count_bad(event.frame, event.turn, out)

    def _count_bad(self, frame: int, turn: str | None, out: list[AnyEvent]) -> None:
        if frame == self._bad_frame:  # more than one event of it was refused
            return
        self._bad_run = self._bad_run + 1 if self._bad_frame == frame - 1 else 1
        self._bad_frame = frame
        if self._error_budget is not None and self._bad_run >= self._error_budget:
            self.exhausted = True
            out.append(
                Notice(
                    frame,
                    turn,
                    "too_many_garbled",
                    f"{self._bad_run} consecutive lines did not follow its protocol",
                )
            )

    def _read_truncated(self, line: Oversized, out: list[AnyEvent]) -> None:
        memo = self.memo
        offset = self._place.offset(memo.frame)
        out.append(Garbled(memo.frame, memo.turn, "oversized", head(line.head), line.size, offset))
        self.garbled += 1
        # Whatever the reading of a cut line counts as quiet was not quiet: part of it is missing.
        quiet, memo.quiet = memo.quiet, memo.quiet.copy()
        memo.truncated = True
        events = self.dialect.read(memo, line.truncated)
        # Reset before its events are judged: they are asked for in the same state as all others.
        memo.truncated = False
        for event in events:
            if isinstance(event, UNREAD):
                data, notice = refuse_unread(self.dialect.write, memo, event)
                self._to_send.append(data)
                self._accept(notice, out)
            elif isinstance(event, TurnEnded):
                gone = (
                    event.error or f"the line that ended the turn was {line.size} bytes long and was not kept"
                )
                event = msgspec.structs.replace(event, text=None, structured_output=None, error=gone)
                self._accept(event, out)
            elif isinstance(event, (Send, TurnStarted, *CONTROL)) or event.frame < memo.frame:
                # Content of a cut line would be taken for the whole; only control events can be believed.
                self._accept(event, out)
        memo.quiet = quiet

    def _remarks(self, event: Started) -> list[AnyEvent]:
        version = parse_version(event.version)
        newest = self.dialect.newest_tested
        if version is None:
            return []
        data = {"cli": self.dialect.name, "version": event.version}
        if version < self.dialect.oldest:
            return [
                Notice(event.frame, event.turn, "version_too_old", f"{event.version} was never tested", data)
            ]
        if newest is not None and version > newest:
            return [
                Notice(
                    event.frame, event.turn, "version_newer", f"{event.version} is newer than tested", data
                )
            ]
        return []

    def _check_id(self, request: AnyRequest) -> None:
        if isinstance(request, Decision):
            if request.id not in self.memo.approvals:
                text = f"no open approval has the id {request.id!r} (phase {self.phase!r})"
                raise UnknownApproval(text, request="decision", phase=self.phase)
        elif isinstance(request, REPLIES):
            if request.id not in self.memo.calls:
                raise self._misuse(request, f"answers nothing: no open request has the id {request.id!r}")
        elif request.id in self.memo.prompts or request.id in self.memo.pending:
            raise self._misuse(request, f"with the id {request.id!r} was sent before and is not answered yet")
        if isinstance(request, Prompt) and request.schema and not self.dialect.can("turn_schema", None):
            raise self._misuse(request, f"with its own schema is not supported by {self.dialect.name}")

    def _misuse(self, request: AnyRequest, what: str) -> Misuse:
        name = str(request.__struct_config__.tag)
        return Misuse(f"a {name!r} request {what}", request=name, phase=self.phase)
