from __future__ import annotations

import inspect
from typing import cast, get_args

import proctor
from proctor.actors import errors as actor_errors
from proctor.actors.error_kinds import facts_of, is_retryable
from proctor.actors.errors import (
    AskTimeout,
    CompletionError,
    MaybeExecuted,
    NotExecuted,
    PoolClosed,
    ProviderError,
    SessionsClosed,
)
from proctor.actors.gateways.http.problems import RETRY_AFTER, problem_of
from proctor.actors.gateways.openai import responses
from proctor.actors.outcomes import ENDING_FACTS, OUTCOMES, Answer, OutcomeFacts, facts_of_end
from proctor.actors.scripted import ScriptError
from proctor.actors.serving.agent_tools import CallPaths, failure, report
from proctor.actors.serving.retry import judge
from proctor.cli import exit_status
from proctor.protocols.vocabulary import Ending
from proctor.runtime import errors as runtime_errors
from proctor.runtime.error_facts import ErrorFacts, Fault
from proctor.runtime.exits import Exit
from proctor.runtime.processes import process_errors
from tests.house.tree import listed
from tests.tables import each_row

PASSING_STATUSES = {409, 429, 502, 503, 504}
"""What an error may be answered with that the same request may not meet again."""
EXIT_STATUSES = {
    value for name, value in vars(exit_status).items() if name.isupper() and isinstance(value, int)
}


def classes() -> list[type[Exception]]:
    """Every error class that a user can meet, but for `Exit`, with which a body ends on purpose."""
    places = (vars(each) for each in (actor_errors, runtime_errors, process_errors))
    public = {name: getattr(proctor, name) for name in proctor.__all__}
    found = {
        kind
        for place in (*places, public, {"ScriptError": ScriptError})
        for kind in place.values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and not issubclass(kind, Exit)
    }
    return sorted((kind for kind in found if kind.__module__.startswith("proctor.")), key=str)


def blank(kind: type[Exception]) -> Exception:
    """An error of this class that was never initialised, so that all it says is what its class says."""
    if kind is proctor.NoProc:  # its text needs a target
        return proctor.NoProc()
    if kind is ProviderError:  # its outcome decides what it wraps
        return ProviderError("p", "no")
    if issubclass(kind, ExceptionGroup):
        group = cast("type[ExceptionGroup[Exception]]", kind)
        return group.__new__(group, "x", [ValueError("x")])
    return kind.__new__(kind)


CLASSES = classes()


def test_there_are_errors_of_each_floor_to_look_at() -> None:
    names = {kind.__name__ for kind in CLASSES}
    assert names >= {"BadOption", "PoolFull", "NoProc", "StartError", "SpawnFailed", "MaxRestartsExceeded"}
    assert len(CLASSES) > 60


def broken_rules(kind: type[Exception]) -> list[str]:
    facts = blank(kind)
    if not isinstance(facts, ErrorFacts):
        return ["it carries no facts"]
    late, unsent = issubclass(kind, AskTimeout), issubclass(kind, NotExecuted)
    rules = {
        "its fault is one of those there are": facts.fault in get_args(Fault),
        "its remedy is a text in lower case": bool(facts.remedy) and facts.remedy[0].islower(),
        "its exit status is one of the command line's": facts.exit_status in EXIT_STATUSES - {exit_status.OK},
        "the caller's is refused by a 4xx": facts.fault != "caller" or 400 <= facts.http_status < 500,
        "ours is 500 and 70": (facts.fault == "us")
        == (facts.http_status == 500)
        == (facts.exit_status == exit_status.INTERNAL),
        "wrong usage is the caller's": facts.exit_status != exit_status.USAGE or facts.fault == "caller",
        "only what passes is retryable": not facts.retryable or facts.fault in ("peer", "machine"),
        "what is retryable has such a status": not facts.retryable or facts.http_status in PASSING_STATUSES,
        "a deadline is 504 and 124": not late
        or (facts.http_status, facts.exit_status) == (504, exit_status.DEADLINE),
        "what was not sent is retryable, but for what is closed": not unsent
        or facts.retryable != issubclass(kind, PoolClosed | SessionsClosed),
    }
    return [rule for rule, holds in rules.items() if not holds]


def test_an_error_class_carries_its_facts_and_they_agree() -> None:
    broken = [f"{kind.__name__}: {rule}" for kind in CLASSES for rule in broken_rules(kind)]
    assert broken == [], listed(broken)


def test_every_table_over_errors_says_what_the_class_says() -> None:
    for kind in CLASSES:
        error = blank(kind)
        assert isinstance(error, ErrorFacts)
        chat = responses.STATUSES.get(error.http_status, error.http_status)
        assert (exit_status.status_of(error), responses.status_of(error)) == (error.exit_status, chat), kind
        assert is_retryable(error) == error.retryable == (judge(error) is not None), kind


@each_row(
    "error",
    [
        proctor.AskNotSent("a", 1.0, delivery=proctor.Delivery(sent="no", stage="queued", elapsed=1.0)),
        proctor.PoolTimeout("pool 'a'", 1.0, ahead=2, elapsed=1.0),
        proctor.PoolFull("pool 'a'", 1000),
        proctor.PoolClosed("pool 'a'"),
        proctor.SessionBusy("session 'a'", "it is in use"),
        proctor.SessionOwned("a", "s", None, None),
        proctor.MaybeExecuted("a", "crashed", "gone"),
        proctor.BudgetExceeded("a", "spent"),
        proctor.UnsupportedPayload("a", "binary", "x/y", "no"),
        proctor.BadOption("no"),
        proctor.NoProc("a"),
        runtime_errors.Running("a"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_problem_has_the_status_and_the_remedy_of_its_error(error: Exception) -> None:
    assert isinstance(error, ErrorFacts)
    problem = problem_of(error)
    assert (problem.record.status, problem.record.remedy) == (error.http_status, error.remedy)
    assert problem.headers == ({"retry-after": str(RETRY_AFTER)} if error.retryable else {})
    assert f"what to do: {error.remedy}" in failure("a", error, CallPaths()).text


def test_a_wrapper_has_the_facts_of_what_it_wraps() -> None:
    for label, facts in OUTCOMES.items():
        provider, whole = ProviderError("p", "no", outcome=label), CompletionError("no")
        whole.__cause__ = provider
        assert facts_of(whole) is provider
        assert all(
            getattr(provider, name) == getattr(facts, name) for name in ("retryable", "fault", "remedy")
        )
        assert (provider.http_status, provider.exit_status) == (facts.http_status, facts.exit_status)
    lost = MaybeExecuted("a", "crashed", "gone")
    lost.__cause__ = process_errors.SpawnFailed("no", stage="spawn", argv0="x", cause=OSError(24, "no"))
    assert not is_retryable(lost)  # it wraps nothing: something was done, whatever the cause


@each_row(("ended", "facts"), [*OUTCOMES.items(), *ENDING_FACTS.items()])
def test_what_an_end_means_agrees_with_itself(ended: str, facts: OutcomeFacts) -> None:
    if ended == "ok":
        assert (facts.http_status, facts.exit_status, facts.retryable) == (200, exit_status.OK, False)
        return
    assert facts.exit_status in EXIT_STATUSES - {exit_status.OK, exit_status.USAGE, exit_status.INTERNAL}
    assert (facts.fault == "caller") <= (facts.http_status < 500)
    assert facts.retryable <= (facts.fault != "caller" and facts.http_status in PASSING_STATUSES)
    if ended in OUTCOMES:
        assert facts.remedy in report(Answer(agent="a", outcome=ended), CallPaths()).text  # type: ignore[arg-type]


def test_the_words_of_a_cli_that_say_more_are_words_there_are() -> None:
    assert set(ENDING_FACTS) <= set(get_args(Ending))
    assert facts_of_end("failed", "overloaded") is ENDING_FACTS["overloaded"]
    assert facts_of_end("crashed", None) is OUTCOMES["crashed"]
    assert facts_of_end("a label of tomorrow", None) is None
