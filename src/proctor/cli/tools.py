"""The tools of `proctor serve`: one for each installed kind of agent, and one for each agent of the fleet.

Agents that are not available are left out and listed with the reason. Only usage errors and invalid files end the command.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import NotExecutable, NotInstalled
from proctor.actors.fleet.fleet import Child, Fleet
from proctor.actors.plan.plan import Plan
from proctor.actors.plan.plan import plan_of as plan_of_spec
from proctor.actors.serving.agent_tools import Terms, one_shot, standing
from proctor.actors.serving.toolset import ServedTool
from proctor.actors.specs import Supervisor
from proctor.cli.agent_kinds import plan_of
from proctor.cli.start_fleet import agents_of, start_children
from proctor.cli.ui.text import WHOLE, one_line

ONE_SHOT = ("claude", "codex", "opencode", "gemini")
"""The kinds that are served by default."""
TITLES: Mapping[str, str] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
    "gemini": "the Gemini CLI",
    "acp": "a coding agent",
    "scripted": "a scripted agent, which needs no model,",
}
_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")

_log = logging.getLogger("proctor.serve")


@attrs.define
class OfferedTools:
    """The tools and the plans behind them by name; `agents` are those of the fleet, `absent` has a line for each that is left out."""

    tools: list[ServedTool] = attrs.field(factory=list[ServedTool])
    plans: dict[str, Plan] = attrs.field(factory=dict[str, Plan])
    agents: dict[str, Agent] = attrs.field(factory=dict[str, Agent])
    absent: list[str] = attrs.field(factory=list[str])

    def leave_out(self, name: str, why: str) -> None:
        """Leave an agent out, with the reason."""
        self.absent.append(f"{name}: {one_line(why, WHOLE)}")
        _log.warning("%s is not available: %s", name, " ".join(why.split()))

    def add_one_shot_tools(self, agents: Sequence[str], terms: Terms) -> None:
        """Add a tool for each kind, written as for `proctor run`. Raises `BadOption` or `ScriptError`."""
        for agent in agents:
            kind = agent.partition(":")[0]
            plan = partial(plan_of, agent)
            made = plan(terms.options)
            try:
                program = made.locate()
            except (NotInstalled, NotExecutable) as error:
                self.leave_out(kind, str(error))
            else:
                _log.info("%s found: %s", kind, " ".join(program) or agent)
                about = f"Have {TITLES[kind]} carry out a prompt in a folder, and give its final answer."
                self.plans[kind] = made
                self.tools.append(one_shot(kind, about, plan, terms))

    async def add_fleet_tools(
        self, supervisor: Supervisor, fleet: Fleet, terms: Terms, record: Path | None
    ) -> None:
        """Start the children of the fleet, and add a tool for each agent, in the order of the file."""
        started: set[str] = set()

        async def conclude(child: Child, cause: Exception | None) -> bool:
            members = [member.name for member in agents_of(child)]
            if cause is None:
                started.update(members)
                for name in members:
                    _log.info("%s has started", name)
            else:
                for name in members or [child.name]:
                    self.leave_out(name, str(cause))
            return True

        await start_children(supervisor, fleet, record, conclude)
        self.follow(supervisor, fleet, terms, record, started)

    def follow(
        self,
        supervisor: Supervisor,
        fleet: Fleet,
        terms: Terms,
        record: Path | None,
        started: Collection[str],
    ) -> None:
        """Offer the agents of another version of the fleet: those that were offered and are still in it, and those that have `started`, by name."""
        offered = {*started, *self.agents}
        others = [tool for tool in self.tools if tool.name not in {tool_name(name) for name in self.agents}]
        tools = list[ServedTool]()
        members = {member.name: member for _, member in fleet.members(fleet.name) if member.name in offered}
        for name in self.agents.keys() - members.keys():
            del self.agents[name], self.plans[name]
        for name, member in members.items():
            about = f"Ask the agent {name!r}, which keeps its conversation from call to call."
            self.agents[name] = agent = supervisor.agent(name)
            if name in started:
                self.plans[name] = plan_of_spec(member.spec(record))
            tools.append(standing(tool_name(name), about, agent, terms))
        self.tools = [*others, *tools]


def tool_name(agent: str) -> str:
    """The name of the tool for this agent: characters that clients reject become `_`."""
    return f"ask_{_CHARACTER.sub('_', agent)}"
