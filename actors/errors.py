"""Errors between a caller and its agent.

Each class carries its facts (`proctor.runtime.error_facts`) as attributes: `retryable`, `fault`, `http_status`, `exit_status`
and `remedy`. A class that does not name one has that of its base. Completions wrap these errors in a `ProviderError`, and that in
a `CompletionError`; `error_kinds.facts_of` looks through both.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import attrs
import trio

from proctor.actors.delivery import Delivery, Stage
from proctor.actors.outcomes import facts_of_end
from proctor.runtime.error_facts import ErrorFacts, Fault, InvalidInput, ProgramMistake
from proctor.runtime.exits import ExitReason, NoProc
from proctor.runtime.processes import PortTaken, ProcessError, SpawnFailed


class AgentError(Exception):
    """The base class of errors of agents. `delivery` says how far the failed request came, None where there was no request."""

    retryable: bool = False
    fault: Fault = "peer"
    http_status: int = 502
    exit_status: int = 1
    remedy: str = "see what it says, and the agent's events"
    delivery: Delivery | None = None

    def adopt(self, facts: ErrorFacts) -> None:
        """Take over the facts of what this error wraps."""
        self.retryable, self.fault, self.remedy = facts.retryable, facts.fault, facts.remedy
        self.http_status, self.exit_status = facts.http_status, facts.exit_status


@attrs.frozen
class OptionFault:
    """The fault of one option, to be read behind its name; `option` is empty where the text says all."""

    option: str
    text: str

    def __str__(self) -> str:
        return f"{self.option} {self.text}" if self.option else self.text


class BadOption(InvalidInput, AgentError, ValueError):
    """An option has an invalid value; the text names the option and what is accepted.

    `faults` holds everything that is wrong with the options of one agent, each a line of the text.
    """

    remedy = "correct the arguments: the text names the option and what is accepted"

    def __init__(self, text: str, faults: Sequence[OptionFault] = ()) -> None:
        super().__init__(text)
        self.faults = tuple(faults) or (OptionFault("", text),)


class UnsupportedPayload(InvalidInput, AgentError, ValueError):
    """This command line has no way to take a payload of this kind and MIME type; nothing was sent."""

    remedy = "leave the payload out, or ask an agent that takes it"

    def __init__(self, cli: str, kind: str, mime: str, text: str) -> None:
        super().__init__(text)
        self.cli = cli
        self.kind = kind
        self.mime = mime


class FleetFaults(InvalidInput, AgentError, ValueError):
    """A fleet file is invalid; `faults` holds every fault, each one line that begins with its position in the tables.

    `lines` has the line of the file for each, 0 where there is none; the text names it, and the agent of `agents`.
    """

    remedy = "correct the lines that it names"

    def __init__(
        self, path: str, faults: Sequence[str], lines: Sequence[int] = (), agents: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.faults = tuple(faults)
        self.lines = tuple(lines) or (0,) * len(self.faults)
        names = tuple(agents) or ("",) * len(self.faults)
        located = zip(self.faults, self.lines, names, strict=True)
        super().__init__("\n".join(_located(path, *one) for one in located))


def _located(path: str, fault: str, line: int, agent: str) -> str:
    where = f"{path}:{line}" if line else path
    return f"{where}: agent {agent!r}: {fault}" if agent else f"{where}: {fault}"


class TransportMisuse(ProgramMistake, AgentError, RuntimeError):
    """A transport was connected twice, read twice, or used before it was connected; nothing was harmed."""


class NotInstalled(AgentError):
    """The CLI is not in any of the places searched."""

    fault: Fault = "machine"
    exit_status = 69
    remedy = "install its command line, or ask another agent"

    def __init__(self, name: str, searched: Sequence[str], install: str) -> None:
        super().__init__(
            f"{name} is not installed; install it with: {install} (looked for {'; '.join(searched)})"
        )
        self.name = name
        self.searched = tuple(searched)
        self.install = install


class NotExecutable(AgentError):
    """The program exists, but it cannot be run."""

    fault: Fault = "machine"
    exit_status = 69
    remedy = "make its program executable, or ask another agent"

    def __init__(self, name: str, path: str, why: str) -> None:
        super().__init__(f"{name} at {path!r} cannot be run: {why}")
        self.name = name
        self.path = path


class VersionCheckFailed(AgentError):
    """`--version` did not print a version; `output` is what it printed instead."""

    fault: Fault = "machine"
    remedy = "check its command line: proctor doctor"

    def __init__(self, path: str, output: str, why: str) -> None:
        super().__init__(f"{path!r} --version: {why}; it printed {output[:200]!r}")
        self.path = path
        self.output = output


class StartRefused(AgentError):
    """The CLI ended before it was ready, and gave the reason; `resumed`: it was asked to resume a session."""

    fault: Fault = "machine"
    remedy = "check what its command line says; a login or an option may be missing"

    def __init__(self, agent: str, detail: str, *, resumed: str | None = None, stderr: str = "") -> None:
        about = f" to resume session {resumed}" if resumed else ""
        super().__init__(f"{agent} refused{about}: {detail}")
        self.detail = detail
        self.resumed = resumed
        self.stderr = stderr


class StartKilled(AgentError):
    """Something killed the CLI before it was ready, for a lack of memory perhaps; `stderr` is the end of what it wrote."""

    retryable = True
    fault: Fault = "machine"
    http_status = 503
    remedy = "ask again with fewer agents at a time; the machine may be out of memory"

    def __init__(self, agent: str, signal: str, stderr: str) -> None:
        super().__init__(f"{agent} was killed by {signal} before it was ready; stderr ends {stderr[-300:]!r}")
        self.stderr = stderr


class SessionOwned(StartRefused):
    """Another agent runs this session; `owner` is its name and `pid` that of its host, None where it did not say."""

    retryable = True
    fault: Fault = "peer"
    http_status = 409
    remedy = "wait until the other call has ended, or ask without the session"

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

    fault: Fault = "caller"
    http_status = 429
    remedy = "ask again when the window of the budget has freed, or ask another agent"

    def __init__(self, agent: str, account: str, seconds: float | None = None) -> None:
        super().__init__(f"{agent} is {'stopped' if seconds is None else 'not asked'}: {account}")
        self.account = account
        self.seconds = seconds


class GreetingTimeout(AgentError):
    """The CLI started but did not answer the greeting in time; `stderr` is the end of what it wrote."""

    retryable = True
    http_status = 504
    remedy = "ask again; if it is slow every time, see its stderr or allow it more time"

    def __init__(self, agent: str, seconds: float, stderr: str) -> None:
        super().__init__(
            f"{agent} did not answer the greeting within {seconds:g} s; stderr ends {stderr[-300:]!r}"
        )
        self.seconds = seconds
        self.stderr = stderr


class Unresponsive(AgentError):
    """The process did not respond or closed its output, and was stopped; `evidence` says how that was seen."""

    retryable = True
    http_status = 504
    remedy = "ask again; if it hangs in the same way, ask for less at a time"

    def __init__(self, agent: str, evidence: str) -> None:
        super().__init__(f"{agent} did not respond and was stopped: {evidence}")
        self.evidence = evidence


class SchemaUnmet(AgentError, ValueError):
    """Data does not match its schema; `violations` lists every mismatch with its path."""

    remedy = "ask again, or for less at a time; the text has each place that does not match"

    def __init__(self, name: str, violations: Sequence[str]) -> None:
        super().__init__(f"does not match {name}: {'; '.join(violations)}")
        self.violations = tuple(violations)


class NotExecuted(AgentError):
    """The request never reached the CLI; repeating it is safe."""

    retryable = True
    http_status = 503
    remedy = "ask again: nothing of the request was carried out"

    def __init__(self, agent: str, why: str, *, delivery: Delivery | None = None) -> None:
        super().__init__(f"{agent} did not take the request: {why}")
        self.delivery = delivery


class AskTimeout(AgentError, TimeoutError):
    """The caller's deadline passed before the turn ended: `AskNotSent` or `AskInterrupted`. `delivery.text` is what had
    streamed by then."""

    http_status = 504
    exit_status = 124
    remedy = "ask again with a longer timeout, or ask for less at a time"

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

    retryable = True
    remedy = "ask again with a longer timeout; nothing of the request was carried out"

    def __init__(self, agent: str, seconds: float, *, delivery: Delivery) -> None:
        what = f"its prompt was never sent (it was {delivery.stage})"
        AskTimeout.__init__(self, agent, seconds, what, delivery=delivery)


class AskInterrupted(AskTimeout):
    """The deadline passed in mid-turn, and the turn was interrupted. `acknowledged`: the CLI has reported its end."""

    def __init__(self, agent: str, seconds: float, *, acknowledged: bool, delivery: Delivery) -> None:
        what = "it was interrupted" + ("" if acknowledged else ", which the CLI has not acknowledged")
        super().__init__(agent, seconds, what, delivery=delivery)
        self.acknowledged = acknowledged


class ResourceUnavailable(NotExecuted):
    """A pool or a session is not available, and the request was never sent. `resource` names it."""

    def __init__(self, resource: str, why: str, *, elapsed: float = 0.0) -> None:
        super().__init__(resource, why, delivery=Delivery(sent="no", stage="queued", elapsed=elapsed))
        self.resource = resource


class PoolFull(ResourceUnavailable):
    """As many requests wait for a slot of the pool as may wait."""

    fault: Fault = "machine"
    remedy = "ask again when others have ended, or give the pool a larger limit or queue"

    def __init__(self, pool: str, waiting: int) -> None:
        super().__init__(pool, f"its queue is full: {waiting} requests wait for a slot already")


class PoolClosed(ResourceUnavailable):
    """The pool was closed: it takes no more requests until it is served again."""

    retryable = False
    fault: Fault = "machine"
    remedy = "serve the pool again, or ask elsewhere"

    def __init__(self, pool: str, *, elapsed: float = 0.0) -> None:
        super().__init__(pool, "it was closed", elapsed=elapsed)


class PoolTimeout(AskNotSent, ResourceUnavailable):
    """The deadline passed while the request waited for a slot of the pool; `ahead` were before it in the queue."""

    fault: Fault = "machine"

    def __init__(self, pool: str, seconds: float, *, ahead: int, elapsed: float) -> None:
        why = f"timed out after {seconds:g} s waiting for a free slot; {_requests(ahead)} ahead"
        _stop_waiting(self, pool, why, seconds, elapsed)


class SessionBusy(ResourceUnavailable):
    """The session is in use, by another call or by another host."""

    http_status = 409
    remedy = "wait until its other calls have ended, or ask without the session"


class SessionTimeout(AskNotSent, SessionBusy):
    """The deadline passed while the request waited for other calls of the session; `ahead` were before it."""

    def __init__(self, session: str, seconds: float, *, ahead: int, elapsed: float) -> None:
        why = f"timed out after {seconds:g} s waiting for the session; {_requests(ahead)} ahead"
        _stop_waiting(self, session, why, seconds, elapsed)


class SessionsFull(ResourceUnavailable):
    """All sessions that may exist at a time are in use."""

    fault: Fault = "machine"
    remedy = "ask again when one is free, or raise the limit of sessions"


class SessionsClosed(ResourceUnavailable):
    """The sessions are not open: before `async with`, or after it."""

    retryable = False
    fault: Fault = "machine"
    remedy = "open them, or ask without a session"


def _requests(count: int) -> str:
    return "1 request was" if count == 1 else f"{count} requests were"


def _stop_waiting(
    error: PoolTimeout | SessionTimeout, resource: str, why: str, seconds: float, elapsed: float
) -> None:
    # by name: `AskNotSent`, the next in line, takes other arguments
    ResourceUnavailable.__init__(error, resource, why, elapsed=elapsed)
    error.seconds = seconds


class ServerLost(AgentError):
    """The server that holds an agent's session cannot be reached, or not any more; the session itself is not lost."""

    retryable = True
    http_status = 503
    remedy = "ask again when the server runs"

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"server {server!r} cannot be reached: {why}")
        self.server = server


class MaybeExecuted(AgentError):
    """The process that worked on the request has ended; what it did before is unknown.

    `outcome` is the label of its end, `partial` the events of the turn that had arrived (the last 1000 of them), `exit` how
    its process ended, None where that is not known.
    """

    remedy = "look at what it has done before you ask again"

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
        """The end of its process, None where that is not known."""
        return None if self.delivery is None else self.delivery.exit


class RecordingFailed(AgentError):
    """The run directory cannot be written, so that nothing would be recorded; `path` is None where no temporary folder can be written either."""

    fault: Fault = "machine"
    remedy = "make room on the disk, or go on without recordings"

    def __init__(self, path: str | None, error: OSError) -> None:
        super().__init__(
            "there is no temporary folder that can be written: mount one, as docker run --tmpfs /tmp does, or name one in TMPDIR"
            if path is None
            else f"cannot write the run directory {path!r}: {error.strerror or error}"
        )
        self.path = path


class ConfigRefused(AgentError):
    """Another program's configuration file was left as it is; the text says which and why."""

    fault: Fault = "machine"
    remedy = "correct the file that it names"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class ProviderError(AgentError):
    """A provider has no valid answer; the `__cause__` is the error of its agent, if there was one.

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
        if (facts := facts_of_end(outcome, ending)) is not None:
            self.adopt(facts)


class CompletionError(AgentError):
    """A completion failed; the `__cause__` is the `ProviderError`, and its cause what the agent raised."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no completion: {why}")


class ContextMissing(InvalidInput, AgentError):
    """A provider was asked without the context that it needs; nothing was started."""

    remedy = "call within() first"

    def __init__(self, provider: str, missing: Sequence[str]) -> None:
        super().__init__(f"its context was not set: {', '.join(missing)}; call within() first")
        self.provider = provider
        self.missing = tuple(missing)


class NoSuchProvider(InvalidInput, AgentError, LookupError):
    """No provider of this name was registered; the text lists those that were."""

    http_status = 404
    remedy = "use one of the names that it lists"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no provider {name!r}; registered: {', '.join(sorted(known)) or 'none'}")
        self.name = name
        self.known = tuple(known)


NOT_HEALED = (NotInstalled, NotExecutable, VersionCheckFailed, StartRefused)
"""Errors of a start that a restart does not heal."""


RECORDED = (AgentError, ProcessError, NoProc)
"""What a request fails with, and says in its `delivery` how far that had come."""

_BEFORE: Mapping[type[Exception], Stage] = {
    BudgetExceeded: "parked",
    ResourceUnavailable: "queued",
    NoProc: "queued",
}
"""Where a request stood that was never sent because of this; else at the start of its process."""


@contextmanager
def unsent(began: float | None = None) -> Generator[None]:
    """A block before a request is sent: an error that leaves it says so. `began` is when it was asked (now)."""
    asked = trio.current_time() if began is None else began
    try:
        yield
    except RECORDED as error:
        if error.delivery is None:
            stage: Stage = "starting"
            for kind, before in _BEFORE.items():
                stage = before if isinstance(error, kind) else stage
            error.delivery = Delivery(sent="no", stage=stage, elapsed=trio.current_time() - asked)
        raise


def delivery_of(error: BaseException) -> Delivery | None:
    """Delivery record of a failed request: that of the error, or of its first cause that has one.

    A program that did not start and an agent that does not run have taken nothing. None where no request of an agent has
    failed.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, RECORDED) and each.delivery is not None:
            return cast("Delivery", each.delivery)
        if isinstance(each, SpawnFailed | PortTaken):
            return Delivery(sent="no", stage="starting", elapsed=each.elapsed, pid=each.pid)
        if isinstance(each, NoProc):
            return Delivery(sent="no", stage="queued", elapsed=0.0)
        each = each.__cause__
    return None
