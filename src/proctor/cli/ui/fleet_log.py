"""Turns the events of a fleet into lines for a person, and keeps a summary for each agent.

Pure: events of supervisors and agents go in, lines come out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Self

import attrs

from proctor.actors.durations import format_duration
from proctor.actors.outcomes import Answer
from proctor.cli.ui.text import last_line, money, one_line, until
from proctor.cli.ui.transcript import SILENT_NOTICES, VOID, line_of
from proctor.cli.ui.verdict import PHRASES, phrase_of, reason
from proctor.protocols import vocabulary as v
from proctor.runtime import events as e
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash, ExitReason, Killed, is_clean
from proctor.runtime.spec import Flags

if TYPE_CHECKING:
    from proctor.actors.fleet.fleet import Fleet  # takes longer to load than all the rest

Tone = Literal["plain", "good", "bad", "faint"]


@attrs.frozen
class Line:
    """A line about an agent or a supervisor. `who` is its path below the root, the name of the fleet for the root."""

    who: str
    text: str
    tone: Tone = "plain"


@attrs.define
class AgentSummary:
    """The summary of one agent. `failure` is the error text where there is no `answer`; `recording` and `worktree` are
    folders that stay."""

    incarnation: int = 0
    restarts: int = 0
    session: str | None = None
    turns: int = 0
    cost_usd: float | None = None
    in_turn: bool = False
    parked: bool = False
    words: str = ""
    answer: Answer | None = None
    failure: str | None = None
    recording: str | None = None
    worktree: str | None = None


@attrs.define
class RestartCounter:
    """The restarts of a supervisor within its period."""

    flags: Flags
    times: deque[float] = attrs.field(factory=deque[float])

    def add(self, now: float) -> str:
        """Count one more; returns `2 of 3 in 60 s`."""
        self.times.append(now)
        while now - self.times[0] > self.flags.period:
            self.times.popleft()
        return f"{len(self.times)} of {self.flags.intensity} in {format_duration(self.flags.period)}"


def describe_exit(ended: ExitReason) -> str:
    """Describe an exit reason: an error by its text, a failed start by its original cause."""
    match ended:
        case Crash(error=StartError() as error):
            return f"{error.id}: {describe_exit(error.reason)}"
        case Crash(error=error):
            return one_line(str(error) or type(error).__name__)
        case _:
            return one_line(str(ended))


class FleetNarrator:
    """Writer of the lines of one fleet by its name. `now` gives seconds on the run's clock, `wall` Unix seconds."""

    def __init__(self, root: str, now: Callable[[], float], wall: Callable[[], float]) -> None:
        self.agents = dict[str, AgentSummary]()
        self.gave_up: str | None = None
        self._root = root
        self._now, self._wall = now, wall
        self._restarts_apart: dict[str, RestartCounter] = {}
        self._restarts = dict[str, RestartCounter]()

    @classmethod
    def of_fleet(cls, fleet: Fleet, now: Callable[[], float], wall: Callable[[], float]) -> Self:
        """The writer that knows the agents and supervisors of a fleet file."""
        narrator = cls(fleet.name, now, wall)
        narrator.follow(fleet)
        return narrator

    def follow(self, fleet: Fleet) -> None:
        """Know the agents of another version of the file as well."""
        for path, _ in fleet.members(fleet.name):
            self.agents.setdefault(path, AgentSummary())
        for path, group in fleet.groups(fleet.name):
            self._restarts.setdefault(path, RestartCounter(Flags(**group.flags())))

    # -- supervisors

    def of_tree(self, event: e.SupervisorEvent) -> Line | None:
        """The line for an event of a supervisor, None for an event that is not shown."""
        match event:
            case e.ChildStarted():
                return self._started(event)
            case e.ChildExited():
                return self._ended(event)
            case e.ChildRestarting():
                return self._restarting(event)
            case e.StartFailed():
                return self._not_started(event)
            case e.MaxRestarts():
                return self._gave_up(event)
            case e.ShutdownFailed():
                return self._line(event.path, f"did not stop as asked: {describe_exit(event.reason)}", "bad")
            case e.ChildOverdue():
                return self._line(
                    event.path, f"did not stop within {format_duration(event.grace)}; killing it", "bad"
                )
            case e.ChildUnresponsive():
                return self._line(event.path, "was killed but has not ended; waiting for it", "bad")
            case _:
                return None

    def _started(self, event: e.ChildStarted) -> Line:
        if event.path in self.agents:
            self.agents[event.path].incarnation = event.incarnation
        again = f", incarnation {event.incarnation}" if event.incarnation > 1 else ""
        return self._line(event.path, f"started{again}")

    def _ended(self, event: e.ChildExited) -> Line | None:
        if event.path in self.agents:
            self.agents[event.path].in_turn = False
        return self._line(event.path, "stopped", "faint") if is_clean(event.reason) else None

    def _restarting(self, event: e.ChildRestarting) -> Line:
        if event.path in self.agents:
            self.agents[event.path].restarts += 1
        counted = self._counted(event.path)
        count = f" ({counted.add(self._now())})" if counted is not None else ""
        delay = f" in {format_duration(event.delay)}" if event.delay else ""
        return self._line(event.path, f"restarting{delay}{count}: {describe_exit(event.reason)}")

    def _counted(self, path: str) -> RestartCounter | None:
        above = self._restarts.get(path.rpartition("/")[0])
        if above is None or above.flags.give_up == "supervisor":
            return above
        return self._restarts_apart.setdefault(path, RestartCounter(above.flags))

    def _not_started(self, event: e.StartFailed) -> Line:
        # killed while it started: the tree is being stopped
        if event.reason == Killed():
            return self._line(event.path, "start aborted", "faint")
        return self._line(event.path, f"could not start: {describe_exit(event.reason)}", "bad")

    def _gave_up(self, event: e.MaxRestarts) -> Line:
        flags = self._restarts[event.path].flags if event.path in self._restarts else Flags()
        often = f"more than {flags.intensity} restarts in {format_duration(flags.period)}"
        if event.child_only:
            text = f"was given up: {event.limit}; last cause: {describe_exit(event.reason)}"
            return self._line(f"{event.path}/{event.id}", text, "bad")
        text = f"gives up because of {event.id}: {often}; last cause: {describe_exit(event.reason)}"
        if event.path == self._root:
            self.gave_up = event.id
        return self._line(event.path, text, "bad")

    # -- agents

    def of_agent(self, path: str, events: Sequence[v.AnyEvent]) -> list[Line]:
        """The lines for events of one agent's log."""
        lines = (self._of_agent(path, self.agents[path], event) for event in events)
        return [line for line in lines if line is not None]

    def _of_agent(self, path: str, watched: AgentSummary, event: v.AnyEvent) -> Line | None:
        match event:
            case v.Started():
                return self._session(path, watched, event)
            case v.TurnStarted():
                watched.in_turn = True
            case v.TurnEnded():
                return self._turn_ended(path, watched, event)
            case v.Text(parent=None):
                watched.words = one_line(last_line(event.text))
                return self._line(path, f"says: {one_line(event.text)}") if event.text.strip() else None
            case v.Notice():
                return self._noticed(path, event)
            case v.Exited():
                self._spend(watched, event)
                return self._exited(path, watched, event)
            case v.LimitReached():
                # the notice "parked", or the answer, has the limit with its time
                return None
            case _:
                text = line_of(event)
                return self._line(path, text, "faint") if text else None
        return None

    def _session(self, path: str, watched: AgentSummary, event: v.Started) -> Line | None:
        # the same session reports itself again, after a restart for one
        if event.session_id == watched.session:
            return None
        watched.session = event.session_id
        return self._line(path, line_of(event) or "", "faint")

    def _turn_ended(self, path: str, watched: AgentSummary, event: v.TurnEnded) -> Line | None:
        watched.in_turn = False
        watched.turns += 1
        self._spend(watched, event)
        return None if event.solicited else self._line(path, "ended a turn without a prompt", "faint")

    def _spend(self, watched: AgentSummary, event: v.TurnEnded | v.Exited) -> None:
        if event.cost_usd is not None:
            watched.cost_usd = (watched.cost_usd or 0.0) + event.cost_usd

    def _noticed(self, path: str, event: v.Notice) -> Line | None:
        match event.code:
            case "sent":
                return self._sent(path, event)
            case "parked":
                self.agents[path].parked = True
                why, at = event.data.get("why", event.text), event.data.get("until")
                return self._line(path, f"parked: {why}" + (f", {until(at, self._wall())}" if at else ""))
            case "resumed":
                return self._line(path, f"resumed {event.text}")
            case "workspace_kept":
                self.agents[path].worktree = str(event.data["path"])
                return self._line(path, line_of(event) or event.code, "faint")
            case code if code == VOID or code not in SILENT_NOTICES:
                return self._line(path, line_of(event) or code, "faint")
            case _:
                return None

    def _sent(self, path: str, event: v.Notice) -> Line | None:
        """The line for a prompt that was sent again; `asked` has the first time."""
        parked, self.agents[path].parked = self.agents[path].parked, False
        if event.text == "asked":
            return None
        return self._line(path, f"woke: {event.text}" if parked else f"continues: {event.text}")

    def _exited(self, path: str, watched: AgentSummary, event: v.Exited) -> Line | None:
        mid_turn, watched.in_turn = watched.in_turn, False
        if event.outcome in ("ok", "stopped") and not mid_turn:
            return None
        how = f"killed by {event.signal}" if event.signal else f"ended with exit status {event.code}"
        if event.signal is None and event.code is None:
            how = phrase_of(event.outcome)
        where = " in mid-turn" if mid_turn else ""
        stderr = last_line(event.stderr)
        return self._line(path, f"{how}{where}{f': {one_line(stderr)}' if stderr else ''}", "bad")

    # -- prompts

    def asked(self, path: str, prompt: str, *, again: bool = False) -> Line:
        """The line for a prompt that was sent to an agent; `again`: an earlier host has sent it, and has its end."""
        return self._line(path, f"{'asked before' if again else 'asked'}: {one_line(prompt)}")

    def answered(self, path: str, answer: Answer) -> Line:
        """The line for an answer."""
        watched = self.agents[path]
        watched.answer = answer
        if answer.ok:
            watched.words = one_line(last_line(answer.text)) or watched.words
        facts = [
            format_duration(answer.duration) if answer.duration is not None else "",
            money(answer.cost_usd),
        ]
        paid = ", ".join(fact for fact in facts if fact)
        text = f"{PHRASES[answer.outcome]}{f' ({paid})' if paid else ''}"
        why = reason(answer)
        return self._line(path, f"{text}: {why}" if why else text, "good" if answer.ok else "bad")

    def unanswered(self, path: str, error: Exception) -> Line:
        """The line for an error instead of an answer."""
        self.agents[path].failure = one_line(str(error))
        return self._line(path, f"no answer: {one_line(str(error))}", "bad")

    def note(self, text: str) -> Line:
        """A line about the whole fleet."""
        return Line(self._root, text)

    def _line(self, path: str, text: str, tone: Tone = "plain") -> Line:
        return Line(path.removeprefix(f"{self._root}/"), text, tone)
