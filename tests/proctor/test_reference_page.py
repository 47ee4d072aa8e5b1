"""The reference page is what the code says, and so is the help of the functions that make agents."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import get_args

import proctor
from proctor.actors.outcomes import Outcome
from proctor.actors.plan.options import SPEC_OPTIONS, SpecOptions, defaults
from proctor.actors.plan.plan import claude_plan
from proctor.protocols import vocabulary as v
from tests.reference.notices import MEANINGS, ROOT, codes
from tests.reference.page import PAGE, errors, page
from tests.tables import each_row

MAKERS = [
    proctor.claude,
    proctor.codex,
    proctor.opencode,
    proctor.gemini,
    proctor.acp,
    proctor.scripted,
]


def test_the_reference_page_is_what_the_code_says() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run `make pages`"


def test_the_reference_page_has_every_option_outcome_event_notice_and_error() -> None:
    text = page()
    outcomes, kinds = get_args(Outcome), get_args(v.AnyEvent)
    names = [*SPEC_OPTIONS, *outcomes, *MEANINGS, *(kind.__name__ for kind in errors())]
    assert [name for name in names if f"| `{name}` |" not in text] == []
    assert [kind.__name__ for kind in kinds if f"### {kind.__name__}\n" not in text] == []


def test_every_notice_of_the_sources_has_a_meaning_and_no_other_has() -> None:
    assert codes() == MEANINGS.keys()


def test_every_option_has_its_help_and_its_default() -> None:
    assert SPEC_OPTIONS.keys() == SpecOptions.__optional_keys__ == defaults().keys()
    assert [option.name for option in SPEC_OPTIONS.values() if not option.help] == []


@each_row("make", MAKERS, ids=lambda make: make.__name__)
def test_the_help_of_a_maker_of_agents_has_every_option(make: Callable[..., object]) -> None:
    parameters = inspect.signature(make).parameters
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in parameters.values()}
    assert SPEC_OPTIONS.keys() <= parameters.keys()
    lines = [f"    {name}: {option.text}." for name, option in SPEC_OPTIONS.items()]
    assert [line for line in lines if line not in (make.__doc__ or "")] == []


def test_a_default_that_the_help_shows_is_the_one_that_an_agent_gets() -> None:
    plan = claude_plan("a", {})
    shown = {name: p.default for name, p in inspect.signature(proctor.claude).parameters.items()}
    parts = (plan.launch, plan.workplace, plan.clocks, plan.conduct)
    made = {name: getattr(part, name) for part in parts for name in SPEC_OPTIONS if hasattr(part, name)}
    assert {name: shown[name] for name in made if name not in ("executable", "mode")} == {
        name: value for name, value in made.items() if name not in ("executable", "mode")
    }
