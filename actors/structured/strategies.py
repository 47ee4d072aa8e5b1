"""The ways to get a structured answer out of an agent, and the choice between them.

`ROUTES` is tried from its top: the first whose facts all hold is taken. The last one needs none, so every agent can
be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs
import msgspec

from proctor.actors.plan.plan import Plan
from proctor.actors.structured.schemas import Schema
from proctor.actors.structured.submit import Find, standing_tools
from proctor.actors.tools.host_calls import declare_tools
from proctor.actors.tools.tools import Tool
from proctor.protocols.lenient import Refusal

Route = Literal["turn", "launch", "tools", "standing_tools", "text"]
"""`turn`: the CLI gets the schema with the prompt; `launch`: at its start; `tools`: the agent calls `submit`, made for this
schema; `standing_tools`: one that is there for every schema; `text`: the prompt contains the schema, the answer is text."""

ROUTES: tuple[tuple[Route, frozenset[str]], ...] = (
    ("turn", frozenset({"has a form", "takes it with a prompt"})),
    ("launch", frozenset({"was launched with it"})),
    ("launch", frozenset({"has a form", "takes it at the launch", "is launched for this", "with no other"})),
    ("tools", frozenset({"hosts tools", "is launched for this"})),
    ("standing_tools", frozenset({"hosts tools", "has them standing"})),
    ("text", frozenset()),
)
"""Route and the facts that it needs."""


@attrs.frozen
class Case:
    """An agent that must answer by a schema. `fresh`: a process is started for this request, so its start can use the schema."""

    plan: Plan
    schema: Schema
    fresh: bool

    @property
    def form(self) -> Mapping[str, Any] | None:
        """The schema in the form that the CLI accepts, None if it does not accept this one."""
        return self.plan.dialect.schema_form(self.schema.json)

    def can(self, capability: str) -> bool:
        """Whether the CLI is known to have this capability."""
        return self.plan.dialect.can(capability, None)


_FACTS: Mapping[str, Callable[[Case], bool]] = {
    "has a form": lambda case: case.form is not None,
    "takes it with a prompt": lambda case: case.can("turn_schema"),
    "takes it at the launch": lambda case: case.can("structured_output"),
    "is launched for this": lambda case: case.fresh,
    "with no other": lambda case: case.plan.launch.json_schema is None,
    "was launched with it": lambda case: case.can("structured_output") and _launched_with(case),
    "hosts tools": lambda case: case.can("host_tools"),
    "has them standing": lambda case: case.plan.conduct.schemas,
}


def route_of(case: Case) -> Route:
    """The first of `ROUTES` whose facts hold."""
    # the last route needs nothing, so there is always one
    return next(route for route, needed in ROUTES if all(_FACTS[fact](case) for fact in needed))


def _launched_with(case: Case) -> bool:
    if (text := case.plan.launch.json_schema) is None:
        return False
    try:
        # compared as values: the order of members and blanks mean nothing
        return msgspec.json.decode(text) in (case.schema.json, case.form)
    except Refusal:
        return False


def launched_for(case: Case, route: Route, tools: tuple[Tool, ...]) -> Plan:
    """The plan of a process that is started for this request by this route."""
    if route == "launch" and case.plan.launch.json_schema is None:
        text = msgspec.json.encode(case.form).decode()
        return attrs.evolve(case.plan, launch=attrs.evolve(case.plan.launch, json_schema=text))
    return with_tools(case.plan, tools) if route == "tools" else case.plan


def kept(plan: Plan) -> Plan:
    """The plan with a session that the next process can resume, if each prompt has its own process and the plan allows it."""
    # a choice of the user, persist=False included, stays as it is
    if plan.launch.mode == "session" or plan.launch.persist is not None:
        return plan
    return attrs.evolve(plan, launch=attrs.evolve(plan.launch, persist=True))


def prepared(plan: Plan, find: Find) -> Plan:
    """The plan of a held agent, with the standing tools if it asks for them and its CLI can host tools.

    Raises `BadOption` when a name is taken."""
    if not (plan.conduct.schemas and plan.launch.mode == "session" and plan.dialect.can("host_tools", None)):
        return plan
    return with_tools(plan, standing_tools(find))


def with_tools(plan: Plan, tools: tuple[Tool, ...]) -> Plan:
    """The plan with more tools of the host. Raises `BadOption` when a name is taken."""
    conduct = attrs.evolve(plan.conduct, host_tools=(*plan.conduct.host_tools, *tools))
    launch = attrs.evolve(plan.launch, host_tools=declare_tools(conduct.host_tools))
    return attrs.evolve(plan, conduct=conduct, launch=launch)
