"""What can go wrong between a caller and its agent, by who must act.

The machine's owner: `NotInstalled`, `NotExecutable`, `VersionCheckFailed`, `RecordingFailed`, `ConfigRefused`. The
caller: `BadOption`, `FleetFaults`, `UnsupportedPayload`, `SchemaUnmet`, `TransportMisuse`, `ContextMissing`,
`NoSuchProvider`. The agent's account or set-up: `StartRefused`. Nobody, it is a fact to deal with: `MaybeExecuted`,
`NotExecuted`, `NoPlace`, `GreetingTimeout`, `Unresponsive`, `StartKilled`, `AskTimeout` (`AskNotSent`, `AskInterrupted`), `SessionOwned`, `BudgetExceeded`, `ServerLost`. Whoever asks for
completions meets these behind a `ProviderError`, behind a `CompletionError`.

What a repetition may heal is a table, by type: `RETRYABLE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from proctor.actors.delivery import Delivery
from proctor.runtime.exits import ExitReason, NoProc
from proctor.runtime.processes import process_errors as process


class AgentError(Exception):
    """The root of this floor's errors. `delivery` says how far a request came that failed with it, None where no request did."""

    delivery: Delivery | None = None


@attrs.frozen
class OptionFault:
    """What is wrong with one option, to be read behind its name; `option` is empty where the text says all."""

    option: str
    text: str

    def __str__(self) -> str:
        return f"{self.option} {self.text}" if self.option else self.text


class BadOption(AgentError, ValueError):
    """An option has a value that nothing can be made of; the text names the option and what is accepted.

    `faults` holds everything that is wrong with the options of one agent, each a line of the text.
    """

    def __init__(self, text: str, faults: Sequence[OptionFault] = ()) -> None:
        super().__init__(text)
        self.faults = tuple(faults) or (OptionFault("", text),)


class UnsupportedPayload(AgentError, ValueError):
    """This command line has no way to take a payload of this kind and MIME type; nothing was sent (R147)."""

    def __init__(self, cli: str, kind: str, mime: str, text: str) -> None:
        super().__init__(text)
        self.cli = cli
        self.kind = kind
        self.mime = mime


class FleetFaults(AgentError, ValueError):
    """A fleet file is wrong; `faults` holds every fault found, each one line that begins with its place in the tables.

    `lines` has the line of the file for each, 0 where there is none; the text names it, and the agent of `agents`.
    """

    def __init__(
        self, path: str, faults: Sequence[str], lines: Sequence[int] = (), agents: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.faults = tuple(faults)
        self.lines = tuple(lines) or (0,) * len(self.faults)
        names = tuple(agents) or ("",) * len(self.faults)
        told = zip(self.faults, self.lines, names, strict=True)
        super().__init__("\n".join(_located(path, *one) for one in told))


def _located(path: str, fault: str, line: int, agent: str) -> str:
    where = f"{path}:{line}" if line else path
    return f"{where}: agent {agent!r}: {fault}" if agent else f"{where}: {fault}"


class TransportMisuse(AgentError, RuntimeError):
    """A transport was connected twice, read twice, or used before it was connected; nothing was harmed (R095, R096)."""


class NotInstalled(AgentError):
    """The CLI was found in none of the places searched (R022, R023, R028)."""

    def __init__(self, name: str, searched: Sequence[str], install: str) -> None:
        super().__init__(
            f"{name} is not installed; install it with: {install} (looked for {'; '.join(searched)})"
        )
        self.name = name
        self.searched = tuple(searched)
        self.install = install


class NotExecutable(AgentError):
    """Something is there, but it cannot be run (R025)."""

    def __init__(self, name: str, path: str, why: str) -> None:
        super().__init__(f"{name} at {path!r} cannot be run: {why}")
        self.name = name
        self.path = path


class VersionCheckFailed(AgentError):
    """`--version` did not print a version; `output` is what it printed instead (R026)."""

    def __init__(self, path: str, output: str, why: str) -> None:
        super().__init__(f"{path!r} --version: {why}; it printed {output[:200]!r}")
        self.path = path
        self.output = output


class StartRefused(AgentError):
    """The CLI ended before it was ready, and said why; `resumed` tells that it was asked to resume a session."""

    def __init__(self, agent: str, detail: str, *, resumed: str | None = None, stderr: str = "") -> None:
        about = f" to resume session {resumed}" if resumed else ""
        super().__init__(f"{agent} refused{about}: {detail}")
        self.detail = detail
        self.resumed = resumed
        self.stderr = stderr


class StartKilled(AgentError):
    """Something killed the CLI before it was ready, for a lack of memory perhaps; `stderr` is the end of what it wrote."""

    def __init__(self, agent: str, signal: str, stderr: str) -> None:
        super().__init__(f"{agent} was killed by {signal} before it was ready; stderr ends {stderr[-300:]!r}")
        self.stderr = stderr


class SessionOwned(StartRefused):
    """Another agent runs this session; `owner` is its name and `pid` that of its host, None where it did not say."""

    def __init__(self, agent: str, session: str, pid: int | None, owner: str | None) -> None:
        who = "another agent" if owner is None else f"agent {owner!r} of process {pid}"
        super().__init__(agent, f"it is owned by {who}", resumed=session)
        self.pid = pid
        self.owner = owner


class BudgetExceeded(AgentError):
    """A budget is spent: one that was to end its agent (`then="escalate"`), or one that leaves a run no room in its time.

    The text says whose and how much. `seconds`: until there may be room, None for an agent that was stopped, infinite
    where turns under way have to end first.
    """

    def __init__(self, agent: str, account: str, seconds: float | None = None) -> None:
        super().__init__(f"{agent} is {'stopped' if seconds is None else 'not asked'}: {account}")
        self.account = account
        self.seconds = seconds


class GreetingTimeout(AgentError):
    """The CLI started but did not answer the greeting in time; `stderr` is the end of what it wrote (C23, R047)."""

    def __init__(self, agent: str, seconds: float, stderr: str) -> None:
        super().__init__(
            f"{agent} did not answer the greeting within {seconds:g} s; stderr ends {stderr[-300:]!r}"
        )
        self.seconds = seconds
        self.stderr = stderr


class Unresponsive(AgentError):
    """The process gave no sign of life, answered no request or closed its output, and was stopped; `evidence` says what
    was found."""

    def __init__(self, agent: str, evidence: str) -> None:
        super().__init__(f"{agent} did not respond and was stopped: {evidence}")
        self.evidence = evidence


class SchemaUnmet(AgentError, ValueError):
    """Data is not what was declared; `violations` are all that is wrong, each with its place."""

    def __init__(self, name: str, violations: Sequence[str]) -> None:
        super().__init__(f"this is no {name}: {'; '.join(violations)}")
        self.violations = tuple(violations)


class NotExecuted(AgentError):
    """The request never reached the CLI; repeating it is safe."""

    def __init__(self, agent: str, why: str, *, delivery: Delivery | None = None) -> None:
        super().__init__(f"{agent} did not take the request: {why}")
        self.delivery = delivery


class AskTimeout(AgentError, TimeoutError):
    """The caller's deadline passed before the turn ended: `AskNotSent` or `AskInterrupted`. `delivery.text` is what had
    streamed by then."""

    def __init__(
        self,
        agent: str,
        seconds: float,
        what: str = "it was interrupted",
        *,
        delivery: Delivery | None = None,
    ) -> None:
        text = f"{agent} did not finish the turn within {seconds:g} s; {what}"
        AgentError.__init__(self, text)  # by name: for `AskNotSent` the next in line takes other arguments
        self.seconds = seconds
        self.delivery = delivery


class AskNotSent(AskTimeout, NotExecuted):
    """The deadline passed before anything of the prompt was written: repeating it is safe."""

    def __init__(self, agent: str, seconds: float, *, delivery: Delivery) -> None:
        what = f"its prompt was never sent (it was {delivery.stage})"
        AskTimeout.__init__(self, agent, seconds, what, delivery=delivery)


class AskInterrupted(AskTimeout):
    """The deadline passed in mid-turn, and the turn was interrupted. `acknowledged`: the CLI has reported its end."""

    def __init__(self, agent: str, seconds: float, *, acknowledged: bool, delivery: Delivery) -> None:
        what = "it was interrupted" + ("" if acknowledged else ", which the CLI has not acknowledged")
        super().__init__(agent, seconds, what, delivery=delivery)
        self.acknowledged = acknowledged


class NoPlace(NotExecuted):
    """There was no room for the request: the time was up, too many waited, or what has the places was closed.

    `place` is the name of the pool, or what else is full.
    """

    def __init__(self, place: str, why: str) -> None:
        super().__init__(place, why)
        self.place = place


class ServerLost(AgentError):
    """The server that holds an agent's session cannot be reached, or not any more; the session itself is not lost."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"server {server!r} cannot be reached: {why}")
        self.server = server


class MaybeExecuted(AgentError):
    """The incarnation that held the request is gone; what it did before is unknown.

    `outcome` is the label of its end, `partial` the events of the turn that had arrived (the last 1000 of them), `exit` how
    its process ended, None where that is not known.
    """

    def __init__(
        self,
        agent: str,
        outcome: str,
        why: str,
        partial: Sequence[Any] = (),
        *,
        delivery: Delivery | None = None,
    ) -> None:
        super().__init__(
            f"{agent} ended in mid-turn ({outcome}): {why}; the request may have been carried out"
        )
        self.outcome = outcome
        self.partial = tuple(partial)
        self.delivery = delivery

    @property
    def exit(self) -> ExitReason | None:
        """How its process ended, None where that is not known."""
        return None if self.delivery is None else self.delivery.exit


class RecordingFailed(AgentError):
    """The run directory cannot be written; nothing would be kept, so the agent stops."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"cannot write the run directory {path!r}: {error.strerror or error}")
        self.path = path


class ConfigRefused(AgentError):
    """Another program's configuration file was left as it is; the text says which and why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class ProviderError(AgentError):
    """A provider has no valid answer to give; the `__cause__` is what its agent raised, if it raised.

    `provider` says which it is. Where its agent answered: `outcome` is the label of the answer, `ending` the CLI's own
    word, `code` the exit status, `stderr` its end, `resets_at` the end of a usage limit (Unix seconds).
    """

    def __init__(
        self,
        provider: str,
        why: str,
        *,
        outcome: str | None = None,
        ending: str | None = None,
        code: int | None = None,
        stderr: str = "",
        resets_at: float | None = None,
    ) -> None:
        super().__init__(f"provider {provider!r}: {why}")
        self.provider = provider
        self.outcome = outcome
        self.ending = ending
        self.code = code
        self.stderr = stderr
        self.resets_at = resets_at


class CompletionError(AgentError):
    """A completion failed; the `__cause__` is the `ProviderError`, and its cause what the agent raised (R105)."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no completion: {why}")


class ContextMissing(AgentError):
    """A provider needs to be told for whom it works before it is asked anything; nothing was started (R115)."""

    def __init__(self, provider: str, missing: Sequence[str]) -> None:
        super().__init__(f"its context was not set: {', '.join(missing)}; call within() first")
        self.provider = provider
        self.missing = tuple(missing)


class NoSuchProvider(AgentError, LookupError):
    """No provider of this name was registered; the text lists those that were (R166)."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no provider {name!r}; known: {', '.join(sorted(known)) or 'none'}")
        self.name = name
        self.known = tuple(known)


NOT_HEALED = (NotInstalled, NotExecutable, VersionCheckFailed, StartRefused)
"""What keeps a process from starting and no restart would heal (L36)."""

RETRYABLE: Mapping[type[Exception], bool] = {
    AgentError: False,
    BadOption: False,
    FleetFaults: False,
    UnsupportedPayload: False,
    SchemaUnmet: False,
    TransportMisuse: False,
    NotInstalled: False,
    NotExecutable: False,
    VersionCheckFailed: False,
    StartRefused: False,
    StartKilled: True,
    SessionOwned: True,
    BudgetExceeded: False,
    GreetingTimeout: True,
    Unresponsive: True,
    AskTimeout: False,
    AskNotSent: True,
    AskInterrupted: False,
    NotExecuted: True,
    NoPlace: False,
    ServerLost: True,
    MaybeExecuted: False,
    RecordingFailed: False,
    ConfigRefused: False,
    ProviderError: False,
    CompletionError: False,
    ContextMissing: False,
    NoSuchProvider: False,
    process.ProcessError: False,
    process.SpawnFailed: True,
    process.NotFound: False,
    process.NotExecutable: False,
    process.CwdMissing: False,
    process.PortTaken: False,
    process.ProcessGone: True,
}
"""Error → whether the same request may go well the next time. What is not named is as what it is derived from."""


def is_retryable(error: BaseException) -> bool:
    """Whether repeating may heal it (R111): not what the caller, the machine's owner or the account has to mend first."""
    named = (RETRYABLE[kind] for kind in type(error).__mro__ if kind in RETRYABLE)
    return next(named, False)


def delivery_of(error: BaseException) -> Delivery | None:
    """How far the request came that failed with this: the record of the error, or of the first cause that has one.

    A process that was never ready and an agent that does not run have taken nothing. None where no request of an agent
    has failed.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, AgentError) and each.delivery is not None:
            return each.delivery
        if isinstance(each, process.ProcessError):
            exit = each.exit if isinstance(each, process.ProcessGone) else None
            return Delivery(sent="no", stage="starting", elapsed=each.elapsed, pid=each.pid, exit=exit)
        if isinstance(each, NoProc):
            return Delivery(sent="no", stage="queued", elapsed=0.0)
        each = each.__cause__
    return None
