"""The reference page: what the code says of every option, outcome, state, event, notice and error."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import msgspec

import proctor
from proctor import runtime, testing
from proctor.actors import errors as actor_errors
from proctor.actors.agent.states import TRANSITIONS, State
from proctor.actors.outcomes import ENDING_FACTS, ENDINGS, EXITS, OUTCOMES, Outcome
from proctor.actors.plan.options import SPEC_OPTIONS, defaults
from proctor.protocols import vocabulary as v
from proctor.runtime import errors as runtime_errors
from proctor.runtime.error_facts import ErrorFacts
from proctor.runtime.processes import process_errors
from proctor.runtime.spec import ChildSpec
from tests.reference.notices import MEANINGS

PAGE = "docs/reference.md"

HEAD = """# Reference

Written by `make pages` from the code; `tests/proctor/test_reference_page.py` compares the two. What an option is for, and how things
belong together, is on the other pages.
"""

REACT: Mapping[str, str] = {
    "go_on": "goes on",
    "restart": "ends; its supervisor decides",
    "park": "waits for the reset",
    "fail": "is `failed` until it is asked again",
}


def page() -> str:
    """The whole page."""
    parts = (_options(), _outcomes(), _states(), _events(), _notices(), _errors(), names())
    return "\n".join([HEAD, *(line for part in parts for line in part)])


def write(root: Path) -> None:
    """Write it."""
    (root / PAGE).write_text(page())


def names() -> Iterator[str]:
    """The section of the names that each public package exports."""
    yield "\n## Names\n"
    yield "What each package exports. A name that is not here, or begins with `_`, can change in any release.\n"
    for package in (proctor, runtime, testing):
        yield f"`{package.__name__}`: {', '.join(f'`{name}`' for name in sorted(package.__all__))}\n"


def _options() -> Iterator[str]:
    yield "## Options\n"
    yield "Keywords of `proctor.claude`, `codex`, `opencode`, `gemini`, `acp` and `scripted`. The last rows are of the child.\n"
    known = defaults()
    rows = (
        (f"`{name}`", f"`{option.written}`", option.none or _default(known[name]), option.help)
        for name, option in SPEC_OPTIONS.items()
    )
    yield from _table(("option", "type", "default", "what it is"), rows)


def _default(value: object) -> str:
    if value == math.inf:
        return "none"
    if isinstance(value, ChildSpec | dict) or value is None or value == ():
        return "none"
    text = f"{value:g}" if isinstance(value, float) else repr(value).strip("'\"")
    return f"`{text}`" if len(text) < 40 else f"a `{type(value).__name__}`"


def _outcomes() -> Iterator[str]:
    yield "## Outcomes\n"
    yield (
        "The label of an answer, by the CLI's word for the end of its turn, or else by who stopped the process and how "
        "it went. What is retryable is repeated by `attempted`; fault, statuses and remedies are explained with the "
        "[errors](#errors).\n"
    )
    rows = (
        (
            f"`{label}`",
            REACT[OUTCOMES[label].reaction],
            *_facts(OUTCOMES[label]),
            _endings(label),
            _exits(label),
        )
        for label in get_args(Outcome)
    )
    heads = ("outcome", "a held agent", *FACTS, "endings", "without an end of the turn")
    yield from _table(heads, rows)
    yield "These endings say more than their outcome:\n"
    endings = ((f"`{word}`", *_facts(facts)) for word, facts in ENDING_FACTS.items())
    yield from _table(("ending", *FACTS), endings)


def _endings(label: Outcome) -> str:
    return _listed(ending for ending, outcome in ENDINGS.items() if outcome == label)


def _exits(label: Outcome) -> str:
    ways = [way for way, outcome in EXITS.items() if outcome == label]
    stoppers = dict.fromkeys(stopper for stopper, _ in ways)
    found = list[str]()
    for stopper in stoppers:
        hows = [how for by, how in ways if by == stopper]
        found.append(f"{stopper}: {'any' if len(hows) == 4 else ', '.join(hows)}")
    return "; ".join(found)


def _states() -> Iterator[str]:
    yield "## States\n"
    yield "Of an agent, `status().state`. What is not here cannot happen.\n"
    rows = ((f"`{state}`", _after(state)) for state in get_args(State))
    yield from _table(("state", "what happens → the next state"), rows)


def _after(state: State) -> str:
    moves = [f"{happening} → `{to}`" for (before, happening), to in TRANSITIONS.items() if before == state]
    return ", ".join(moves)


def _events() -> Iterator[str]:
    yield "## Events\n"
    yield (
        "Each has `frame`, the line of the CLI that it came from (-1: none), and `turn`, the id of its turn or None. The names in "
        "code are those of the classes, `type` is their name in JSON.\n"
    )
    for kind in get_args(v.AnyEvent):
        own = {
            name: text
            for name, text in inspect.get_annotations(kind).items()
            if name not in v.Event.__struct_fields__
        }
        yield f"### {kind.__name__}\n"
        yield f"`{kind.__struct_config__.tag}`. {_doc(kind)}\n"
        if own:
            fields = {field.name: field for field in msgspec.structs.fields(kind)}
            rows = ((f"`{name}`", f"`{text}`", _field(fields[name])) for name, text in own.items())
            yield from _table(("field", "type", "default"), rows)


def _field(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    return "required" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"


def _notices() -> Iterator[str]:
    yield "## Notices\n"
    yield "The codes of a `Notice`. The code is stable, its `text` is not.\n"
    yield from _table(("code", "what it says"), ((f"`{code}`", MEANINGS[code]) for code in sorted(MEANINGS)))


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield FACTS_TEXT
    rows = (
        (
            f"`{kind.__name__}`",
            _listed(base.__name__ for base in kind.__bases__ if issubclass(base, BaseException)),
            _doc(kind),
            *_facts(kind),
        )
        for kind in errors()
    )
    yield from _table(("error", "is also", "when", *FACTS), rows)
    yield DECISIONS


FACTS = ("retryable", "fault", "HTTP", "exit", "what to do")
FACTS_TEXT = """Every error class has its facts as attributes, an outcome has them in `proctor.actors.outcomes.OUTCOMES`:

* `retryable`: the same request may succeed later with nothing changed. Whether something of it was carried out already is another
  question, which its `delivery` answers; `error_kinds.is_safe_to_repeat(error)` asks both.
* `fault`: who must act. `caller`: the request has to change. `peer`: the command line, its API or another agent failed. `machine`: its
  owner changes something: a login, a setting, a limit, memory. `us`: a mistake in proctor or in the program that uses it.
* `http_status`: what [HTTP](guides/serve-over-http.md) answers; the chat API says 400 for 422, 408 for 504 and 500 for 502.
* `exit_status`: what a command ends with.
* `remedy`: what to do.

`proctor.actors.error_kinds.facts_of(error)` gives those of any error: a `CompletionError`, a `ProviderError` and a `StartError` have
those of the error that they wrap; a call that the system refused because something had run out is retryable; an error of somebody
else's is a fault of ours.
"""
DECISIONS = """Cases that look alike:

| case | decision |
|---|---|
| the deadline passed in mid-turn: `AskInterrupted`, outcome `deadline` | not retryable: the same time would not do, and something may have been done |
| the deadline passed before anything was sent: `AskNotSent`, `PoolTimeout`, `SessionTimeout` | retryable, and safe; a deadline as well: 504, 124 |
| `PoolFull`, `SessionsFull`, `MaxChildren` | retryable, the machine's: a limit that was set for it is reached |
| `PoolClosed`, `SessionsClosed` | not retryable: its owner opens it again first |
| `SessionBusy`, `SessionOwned` | retryable, the peer's: it passes when the other call ends; 409 |
| outcomes `crashed`, `no_answer`, `stalled`, `killed_by_system` | retryable: a new run starts anew, and asking for retries permits that a run is carried out twice |
| `MaybeExecuted`, the same ends in a held agent's conversation | not retryable: the conversation has gone on, and only its caller can look what was done |
| outcomes `stopped`, `killed` | not retryable, the machine's owner's: it was stopped on purpose |
| outcome `limited` | retryable after `resets_at`; `attempted` does not repeat it where the reset is not known |
| `BudgetExceeded`, outcome `exhausted` | not retryable, the caller's: its own limit is reached; `seconds` says until when |
| `SpawnFailed` | retryable where something had run out, or the system gave no reason |
| `NoProc`, `ActorExited`, `CallTimeout` | retryable: the actor may be restarting; whether it acted is not known |
| `SchemaUnmet` and the ending `schema_unmet` | the peer's: the agent's answer does not match |
| `FleetFaults` | the caller's, as any wrong option: exit status 2 |
"""


def _facts(facts: object) -> Iterator[str]:
    """The cells of an error class or an outcome; none of what has no facts."""
    if not isinstance(facts, ErrorFacts) or facts is OUTCOMES["ok"]:
        yield from ("", "", "", "", "")
        return
    yield "yes" if facts.retryable else ""
    yield from (facts.fault, str(facts.http_status), str(facts.exit_status), facts.remedy)


def errors() -> list[type[BaseException]]:
    """Every error that a user of the library can meet: the public ones, and all of those of agents."""
    public = (getattr(proctor, name) for name in proctor.__all__)
    own = (vars(each).values() for each in (actor_errors, runtime_errors, process_errors))
    kinds = {
        kind for kind in (*public, *chain(*own)) if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    return sorted(
        (kind for kind in kinds if kind.__module__.startswith("proctor.")),
        key=lambda kind: (kind.__name__, kind.__module__),
    )


def _doc(kind: type) -> str:
    """The first paragraph of a docstring, on one line."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return re.sub(r" \([A-Z]\d+(?:, [A-Z]\d+)*\)", "", text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""
