"""A recorded run as a trajectory (ATIF), for any kind of agent: made from its events alone, which are the same for all of them.

Guarantees: every recording has a trajectory, also one without a turn or with its beginning lost; each tool call and each result is in it
once; what the CLI did not report is left out and never guessed. Tokens and dollars are those of whole turns, as command lines report
them, and stand at the last step of their turn. Prompts and times are not in the events: they come from the input and the `meta.json`
of each process, as far as these are still there.

Not here: pictures and documents, which stay in the recorded frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import attrs
import msgspec

from proctor.actors.expense import Expense, prompt_tokens
from proctor.actors.outcomes import ENDINGS
from proctor.actors.recording.atif import (
    VERSION,
    AgentInfo,
    Extra,
    FinalMetrics,
    Metrics,
    Step,
    Trajectory,
)
from proctor.actors.recording.run_summary import agent_of, recorded_events
from proctor.actors.recording.sent_prompts import SentPrompts, Sort
from proctor.actors.recording.trajectory_steps import Draft, Voice
from proctor.actors.scripted.script import ScriptError, read_stream
from proctor.protocols import vocabulary as v

NOTES = "The metrics of a turn are those of all its model calls and stand at its last agent step."
_NO_STEPS = frozenset(
    {"sent", "attempt_void", "approval", "background_tasks", "task_progress", "task_updated"}
)
"""Codes of notices that are no steps of their own."""
_UNREAD: Mapping[type, str] = {v.Garbled: "garbled", v.Unrecognized: "unrecognized", v.Misplaced: "misplaced"}


class Source(Protocol):
    """What a trajectory has from beside the events."""

    def text_of(self, incarnation: int, request: str, sort: Sort) -> str | None:
        """The text that was sent to this process; None where it is not known."""
        ...

    def time_of(self, incarnation: int, frame: int) -> float | None:
        """When a line of this process came, in Unix seconds; None where it is not known."""
        ...


@attrs.define
class RecordedProcess:
    """One process of a run: its `kind` and arguments, when it began (Unix seconds), when each of its lines came (seconds after
    that), and the `prompts` that it was sent."""

    kind: str
    argv: tuple[str, ...]
    begun: float | None
    line_times: Sequence[float]
    prompts: SentPrompts

    def time_of(self, frame: int) -> float | None:
        """When a line came, in Unix seconds; None where it is not known."""
        is_known = self.begun is not None and 0 <= frame < len(self.line_times)
        return (self.begun or 0) + self.line_times[frame] if is_known else None


class _Meta(msgspec.Struct):
    cli: str = ""
    argv: list[str] = []
    begun: float | None = None
    line_times_s: list[float] = []


class RunFiles:
    """The `Source` of a run in the folder `path`. What cannot be read there is not known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._processes: dict[int, RecordedProcess | None] = {}

    @property
    def kind(self) -> str:
        """The kind of the command line, empty where no process has been recorded."""
        numbers = sorted(int(one.name) for one in self._path.iterdir() if one.name.isdigit())
        return next((process.kind for number in numbers if (process := self._process(number))), "")

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments of its first process."""
        process = self._process(1)
        return () if process is None else process.argv

    def text_of(self, incarnation: int, request: str, sort: Sort) -> str | None:
        process = self._process(incarnation)
        return None if process is None else process.prompts.take(request, sort)

    def time_of(self, incarnation: int, frame: int) -> float | None:
        process = self._process(incarnation)
        return None if process is None else process.time_of(frame)

    def _process(self, incarnation: int) -> RecordedProcess | None:
        if incarnation not in self._processes:
            self._processes[incarnation] = read_process(f"{self._path}/{incarnation}/")
        return self._processes[incarnation]


def read_process(prefix: str) -> RecordedProcess | None:
    """Read the process whose files begin with `prefix`, such as `RUN/1/`; None without its `meta.json`."""
    try:
        meta = msgspec.json.decode(Path(f"{prefix}meta.json").read_bytes(), type=_Meta)
    except (OSError, msgspec.DecodeError):
        return None
    stdin = b""
    # without one of its parts the order of the prompts is unknown
    with suppress(ScriptError, OSError):
        stdin = read_stream(prefix, "stdin.ndjson")
    prompts = SentPrompts.read(stdin, meta.argv)
    return RecordedProcess(meta.cli, tuple(meta.argv), meta.begun, meta.line_times_s, prompts)


def read_trajectory(folder: Path) -> Trajectory:
    """The trajectory of the run recorded in `folder`, as far as it has come. Blocks; raises OSError."""
    files = RunFiles(folder)
    return trajectory_of(
        recorded_events(folder),
        files,
        kind=files.kind,
        argv=files.argv,
        agent=agent_of(folder),
        id=folder.name,
    )


def trajectory_of(
    events: Iterable[v.AnyEvent],
    source: Source,
    *,
    kind: str,
    argv: Sequence[str] = (),
    agent: str = "",
    id: str | None = None,
) -> Trajectory:
    """The trajectory of these events. `kind` is that of the command line with the arguments `argv`, `agent` the agent's name in its tree, and `id`
    the id of the trajectory."""
    story = _Story(source, kind=_counting_kind(kind, argv))
    for event in events:
        story.take(event)
    return story.trajectory(kind or "unknown", agent, id)


def _counting_kind(kind: str, argv: Sequence[str]) -> str:
    """The kind of command line that counts the tokens: a scripted agent counts as the one whose wire it speaks."""
    return "codex" if any(word.startswith("--dialect=codex") for word in argv) else kind


@attrs.define
class _Turn:
    """A turn that runs: how many whole texts it has, and its steps of the agent. Two can overlap."""

    texts: int = 0
    drafts: list[Draft] = attrs.field(factory=list[Draft])


class _Story:
    """The events so far, as steps of the agent and of its subagents."""

    def __init__(self, source: Source, *, kind: str) -> None:
        self._source = source
        self._kind = kind
        self._voices: dict[str | None, Voice] = {None: Voice(None)}
        self._main = self._voices[None]
        self._incarnation = 1
        self._at: str | None = None
        self._asked: dict[str, Draft] = {}  # prompts whose text is not known yet, by id
        self._known = set[str]()
        self._approvals: dict[str, tuple[Voice, str]] = {}
        self._turns: dict[str | None, _Turn] = {}
        self._model: str | None = None
        self._started: v.Started | None = None
        self._session: str | None = None
        self._expense = Expense()
        self._unread = Counter[str]()

    # -- events

    def take(self, event: v.AnyEvent) -> None:
        """Add an event."""
        if event.turn is not None and (number := event.turn.partition(".")[0]).isdigit():
            self._incarnation = int(number)
        time = self._source.time_of(self._incarnation, event.frame)
        self._at = None if time is None else _moment(time)
        match event:
            case v.Started():
                self._started, self._session = self._started or event, event.session_id
                self._model = event.model or self._model
            case v.TurnStarted() | v.Steered():
                self._on_request(event)
            case v.TurnEnded():
                self._on_turn_ended(event)
            case v.Exited():
                self._on_exited(event)
            case v.Notice():
                self._on_notice(event)
            case v.ApprovalRequested() | v.Retrying() | v.LimitReached():
                self._on_delay(event)
            case v.TextDelta() | v.Text() | v.Thinking() | v.ToolCall() | v.ToolResult():
                self._voice(event.parent).take(event, self._at)
                if event.parent is None:
                    self._count(event)
            case v.Garbled() | v.Unrecognized() | v.Misplaced():
                self._unread[_UNREAD[type(event)]] += 1
            case _:
                pass

    def _count(self, event: v.AnyEvent) -> None:
        turn = self._turns.setdefault(event.turn, _Turn())
        turn.texts += isinstance(event, v.Text)
        last = self._main.drafts[-1] if self._main.drafts else None
        if last is not None and last.source == "agent" and last not in turn.drafts[-1:]:
            turn.drafts.append(last)

    def _voice(self, parent: str | None) -> Voice:
        return self._voices.setdefault(parent, Voice(parent))

    def _on_request(self, event: v.TurnStarted | v.Steered) -> None:
        if isinstance(event, v.Steered):
            if event.request not in self._known:
                text = self._source.text_of(self._incarnation, event.request, "steer")
                text = text or self._source.text_of(self._incarnation, event.request, "prompt")
                self._main.add("user", self._at, text or "", {"steered": True})
            return
        self._main.close_turn()
        if not event.solicited:
            self._main.add("system", self._at, "The agent began a turn by itself.", {"event": "turn_started"})
        for prompt in event.prompts:
            self._resolve(prompt)

    def _resolve(self, prompt: str) -> None:
        """Have a step of the user for this prompt, with its text."""
        if prompt in self._known:
            return
        self._known.add(prompt)
        text = self._source.text_of(self._incarnation, prompt, "prompt")
        draft = self._asked.pop(prompt, None) or self._main.add("user", self._at, "", {})
        if text is not None:
            draft.texts.append(text)

    def _on_notice(self, event: v.Notice) -> None:
        match event.code:
            case "sent":
                self._on_sent(event.data)
            case "attempt_void":
                whole = event.data.get("texts", 0)
                self._voice(event.data.get("parent")).void(whole if isinstance(whole, int) else 0)
            case "approval" if (place := self._approvals.get(str(event.data.get("id")))) is not None:
                voice, id = place
                if (call := voice.call(id)) is not None:
                    call.extra = {**(call.extra or {}), "allowed": event.data.get("allow")}
            case code if code not in _NO_STEPS:
                self._system(event.text or code.replace("_", " "), event=code, **event.data)
            case _:
                pass

    def _on_sent(self, data: Mapping[str, object]) -> None:
        at = data.get("at")
        moment = _moment(at) if isinstance(at, int | float) else None
        attempt = data.get("attempt")
        extra: Extra = {"attempt": attempt} if isinstance(attempt, int) and attempt > 1 else {}
        self._main.close_turn()
        self._asked[str(data.get("prompt"))] = self._main.add("user", moment, "", extra)

    def _on_delay(self, event: v.ApprovalRequested | v.Retrying | v.LimitReached) -> None:
        match event:
            case v.ApprovalRequested():
                voices = self._voices.values()
                at = next((voice for voice in voices if voice.call(event.tool_call or "") is not None), None)
                if at is not None and event.tool_call is not None:
                    self._approvals[event.id] = (at, event.tool_call)
            case v.Retrying():
                for voice in self._voices.values():
                    voice.void(0)
                facts = _facts(event)
                why = f": {event.error}" if event.error else ""
                self._system(f"The CLI repeats a request to its model{why}", event="retrying", **facts)
            case v.LimitReached():
                self._system("A usage limit was reached.", event="limit_reached", **_facts(event))

    def _system(self, text: str, **extra: object) -> None:
        self._main.add("system", self._at, text, dict(extra))

    # -- ends

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        for prompt in event.prompts:
            if prompt in self._asked:  # refused before it began
                self._resolve(prompt)
        self._finish_voices(event)
        turn = self._turns.pop(event.turn, _Turn())
        if event.text and not turn.texts and event.ending == "completed":
            turn.drafts.append(self._main.agent_step(self._at))
            turn.drafts[-1].texts.append(event.text)
        self._account(event, turn)
        if ENDINGS[event.ending] != "ok":
            facts = {
                "event": "turn_ended",
                "ending": event.ending,
                **_named(detail=event.detail, status=event.status),
            }
            self._system(event.error or event.detail or event.ending.replace("_", " "), **facts)
        self._main.close_turn()

    def _on_exited(self, event: v.Exited) -> None:
        self._finish_voices(event)
        self._account(event, self._turns.pop(event.turn, _Turn()))
        if event.turn is not None or event.outcome not in ("ok", "stopped"):
            facts = {"outcome": event.outcome, **_named(code=event.code, signal=event.signal)}
            text = f"The process of the command line ended: {event.outcome.replace('_', ' ')}."
            self._system(f"{text}\n{event.stderr}".strip(), event="exited", **facts)
        self._main.close_turn()
        self._turns.clear()
        self._incarnation = event.incarnation + 1

    def _finish_voices(self, end: v.TurnEnded | v.Exited | None = None) -> None:
        steps = len(self._main.drafts)
        for voice in self._voices.values():
            voice.finish(self._at)
        if end is not None and len(self._main.drafts) > steps:
            self._count(end)

    def _account(self, event: v.TurnEnded | v.Exited, turn: _Turn) -> None:
        self._expense.take(event)
        extra = _named(turn=event.turn)
        model, calls = None, None
        if isinstance(event, v.TurnEnded):
            extra |= _named(duration_sec=event.duration, structured_output=event.structured_output)
            model, calls = event.model, event.model_turns
        metrics = self._metrics(event.usage, event.cost_usd)
        draft = next((one for one in reversed(turn.drafts) if not one.is_empty), None)
        if draft is None and (metrics is None or not (metrics.prompt_tokens or metrics.cost_usd)):
            return
        draft = draft or self._main.agent_step(self._at, new=True)
        for one in turn.drafts:
            one.model = model if model != self._first_model else None

        def complete(step: Step) -> None:
            step.metrics = metrics
            step.extra = {**(step.extra or {}), **extra} or None
            step.llm_call_count = calls if len(turn.drafts) == 1 and calls else None

        draft.ended = complete

    @property
    def _first_model(self) -> str | None:
        return None if self._started is None else self._started.model

    def _metrics(self, usage: v.Usage | None, cost_usd: float | None) -> Metrics | None:
        prompt, completion, cached, written = self._tokens(usage)
        extra: Extra | None = None if written is None else {"cache_write_tokens": written}
        metrics = Metrics(prompt, completion, cached, cost_usd, extra)
        return None if metrics == Metrics() else metrics

    def _tokens(self, usage: v.Usage | None) -> tuple[int | None, int | None, int | None, int | None]:
        """The tokens of the prompt with the cached ones, those of the completion, the cached ones, and those written to a cache."""
        if usage is None:
            return None, None, None, None
        cached, written = usage.cache_read_tokens, usage.cache_write_tokens
        return prompt_tokens(usage, self._kind), usage.output_tokens, cached, written

    # -- the whole

    def trajectory(self, kind: str, agent: str, id: str | None) -> Trajectory:
        """The trajectory of all events."""
        self._finish_voices()
        for prompt in [*self._asked]:
            self._resolve(prompt)
        started = self._started
        info = AgentInfo(
            kind, (started and started.version) or "unknown", (started and started.model) or self._model
        )
        extra = _named(name=agent or None, cwd=started and started.cwd, tools=started and [*started.tools])
        info.extra = {key: value for key, value in extra.items() if value} or None
        subagents = [self._subagent(voice, info) for voice in self._voices.values() if voice.name is not None]
        steps = _steps(self._main)
        if not steps:
            steps = [Step(step_id=1, source="system", message="Nothing was recorded of this run.")]
        return Trajectory(
            schema_version=VERSION,
            session_id=self._session,
            trajectory_id=id,
            agent=info,
            steps=steps,
            notes=NOTES,
            final_metrics=self._final(len(steps)),
            extra={"unread_lines": dict(self._unread)} if self._unread else None,
            subagent_trajectories=[one for one in subagents if one is not None] or None,
        )

    def _subagent(self, voice: Voice, info: AgentInfo) -> Trajectory | None:
        """The trajectory of a subagent, to which the result of its tool call refers."""
        name = voice.name or ""
        others = [other for other in self._voices.values() if other is not voice]
        calls = [other.call(name) for other in others if other.refer(name)]
        task = next((call.arguments.get("prompt") for call in calls if call is not None), None)
        if isinstance(task, str):
            voice.drafts.insert(0, Draft("user", None, [task]))
        steps = _steps(voice)
        if not steps:
            return None
        own = AgentInfo(f"{info.name} subagent", info.version, info.model_name)
        return Trajectory(schema_version=VERSION, trajectory_id=name, agent=own, steps=steps)

    def _final(self, steps: int) -> FinalMetrics:
        spent = self._expense
        prompt, completion, cached, written = self._tokens(spent.usage)
        extra = _named(cache_write_tokens=written, duration_sec=spent.duration, model_turns=spent.model_turns)
        extra |= {"turns": spent.turns, "turns_without_cost": spent.unpriced}
        return FinalMetrics(prompt, completion, cached, spent.cost_usd, steps, extra)


def _steps(voice: Voice) -> list[Step]:
    drafts = [draft for draft in voice.drafts if not draft.is_empty]
    return [draft.step(number) for number, draft in enumerate(drafts, 1)]


def _facts(event: v.Retrying | v.LimitReached) -> Extra:
    """The fields of an event that say something, without those of its place."""
    fields = msgspec.structs.asdict(event)
    return {key: value for key, value in fields.items() if key not in ("frame", "turn") and value is not None}


def _named(**facts: object) -> Extra:
    return {key: value for key, value in facts.items() if value is not None}


def _moment(seconds: float) -> str:
    """Unix seconds as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
