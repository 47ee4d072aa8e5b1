"""The verbs: clients of the control sockets of running fleets."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from proctor.actors.client.sockets import TIMEOUT, running_hosts
from proctor.actors.durations import UNLIMITED, duration, format_duration, format_moment, limit
from proctor.cli.addressing import Record, agent_of, agents_of, fleet_of
from proctor.cli.commands.decisions import answer, approval_lines, decide, extend, list_approvals
from proctor.cli.control_client import LONGEST, Client, ControlError, problem_of, wait_ended
from proctor.cli.exit_status import DEADLINE, FAILED, OK, USAGE
from proctor.cli.loading import loading
from proctor.cli.ui.listing import Column, cell, show, write
from proctor.cli.ui.need import AT_REST, need
from proctor.cli.ui.text import WHOLE, money, one_line, printable
from proctor.cli.usage_errors import complain, missing_of

RESTARTS = 10
"""The restarts of an agent that are shown: the last."""
AT_FAULT = ("parked", "backoff", "failed")
"""The states whose reason the operator of an agent has to know."""


def control_command(name: str, options: Namespace) -> int:
    """Run a verb and return the exit status. An error is one line on stderr."""
    try:
        options.timeout = limit(getattr(options, "timeout", TIMEOUT))
        options.limit = limit(getattr(options, "limit", UNLIMITED))
        return COMMANDS[name](options)
    except ValueError as error:
        complain(f"{error} (see proctor {name} --help)")
        return USAGE
    except ControlError as error:
        complain(one_line(str(error), WHOLE))
        return error.status


# -- lists


def _ls(options: Namespace) -> int:
    hosts = running_hosts()
    records = [_host_record(Client(host, options.timeout)) for host in hosts]
    columns: Mapping[str, Column] = {
        "FLEET": "fleet",
        "PID": "pid",
        "SINCE": lambda record: _moment(record["since"]),
        "AGENTS": "agents",
        "NEEDS YOU": "needs_you",
    }
    return show(options.output, records, columns)


def _host_record(client: Client) -> Record:
    host = client.host
    own = {"fleet": host.fleet, "pid": host.pid, "socket": host.path}
    try:
        snapshot = client.get("/fleet")
    except ControlError as error:
        # one that hangs is listed, too: it is the one to look for
        return {**own, "since": None, "agents": None, "needs_you": str(error)}
    needed = sum(agent["approvals"] > 0 for agent in snapshot["agents"])
    return {**own, "since": snapshot["since"], "agents": len(snapshot["agents"]), "needs_you": needed}


def _moment(text: str | None) -> str:
    return "" if text is None else format_moment(datetime.fromisoformat(text).timestamp(), time.time())


def _ps(options: Namespace) -> int:
    agents = sorted(fleet_of(options).get("/fleet")["agents"], key=_need)
    columns: Mapping[str, Column] = {
        "AGENT": "name",
        "STATE": "state",
        "FOR": lambda agent: "" if agent["since"] is None else format_duration(time.time() - agent["since"]),
        "QUEUED": "queued",
        "TURNS": "turns",
        "COST": lambda agent: money(agent["cost_usd"]),
        "RESTARTS": "restarts",
        "WHY": lambda agent: agent["unresponsive"] or agent["evidence"],
    }
    return show(options.output, agents, columns)


def _completion(options: Namespace) -> int:
    if options.kind == "fleets":
        write(host.fleet for host in running_hosts())
    elif options.kind == "agents":
        write(_agent_names([Client(host, options.timeout) for host in running_hosts()]))
    else:
        with loading():
            from proctor.cli.commands.completion import completion_script

        sys.stdout.write(completion_script(options.kind))
    return OK


def _agent_names(clients: Sequence[Client]) -> Iterator[str]:
    """The names of all agents; with that of their fleet while several run."""
    for client in clients:
        prefix = f"{client.host.fleet}/" if len(clients) > 1 else ""
        with suppress(ControlError):  # one that hangs hides no names of the others
            yield from (f"{prefix}{agent['name']}" for agent in client.get("/fleet")["agents"])


def _top(options: Namespace) -> int:
    if missing := missing_of("top"):
        complain(missing)
        return USAGE
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("top needs a terminal; proctor ps lists the agents")
        return USAGE
    host = fleet_of(options).host
    with loading():
        from proctor.cli.top.app import TopApp
        from proctor.cli.top.feed import Feed

    # the thread that reads a busy fleet gives way to a key within a millisecond, not five
    sys.setswitchinterval(0.001)
    app = TopApp(Feed(host, options.timeout))
    app.run()
    return app.return_code or OK


def _attach(options: Namespace) -> int:
    place = agent_of(options)
    with loading():
        from proctor.cli.commands.attach import attach, check_terminal

    if why_not := check_terminal():
        complain(why_not)
        return USAGE
    return attach(place.client.host, place.name, options.timeout)


def _need(agent: Record) -> tuple[int, str]:
    return need(agent["state"], agent["approvals"]), agent["name"]


def _requests(options: Namespace) -> int:
    if options.agent is None:
        client, chosen = fleet_of(options), dict[str, str]()
    else:
        if options.fleet is not None and "/" not in options.agent:
            options.agent = f"{options.fleet}/{options.agent}"
        place = agent_of(options)
        client, chosen = place.client, {"agent": place.name}
    if options.state is not None:
        chosen["state"] = options.state
    path = f"/requests?{urlencode({**chosen, 'limit': options.most})}"
    columns: Mapping[str, Column] = {
        "AGENT": "agent",
        "FATE": lambda request: request["outcome"] or request["state"],
        "AGE": lambda request: format_duration(max(0.0, time.time() - request["accepted"])),
        "COST": lambda request: money(request["cost_usd"]),
        "KEY": "key",
        "PROMPT": "prompt",
    }
    return show(options.output, client.get(path)["requests"], columns)


def _tree(options: Namespace) -> int:
    snapshot = fleet_of(options).get("/fleet")
    agents = {agent["name"]: agent for agent in snapshot["agents"]}
    write(_branch(snapshot["tree"], agents, 0))
    return OK


def _branch(node: Record, agents: Mapping[str, Record], depth: int) -> Iterator[str]:
    facts = agents.get(node.get("agent", ""), node)
    evidence = facts.get("evidence")
    yield f"{'  ' * depth}{node['id']}  {facts['state']}{f' ({one_line(evidence)})' if evidence else ''}"
    for child in node.get("children", ()):
        yield from _branch(child, agents, depth + 1)


def _describe(options: Namespace) -> int:
    place = agent_of(options)
    approvals = place.client.get("/approvals")["approvals"]
    history = place.client.get(f"/restarts?{urlencode({'agent': place.name, 'limit': RESTARTS})}")["restarts"]
    asking = [one for one in approvals if one["agent"] == place.name]
    record = {**place.record, "restart_history": history, "open_approvals": asking}
    if options.output != "table":
        return show(options.output, [record], {})
    asked, restarted = record.pop("open_approvals"), record.pop("restart_history")
    shown = {name: value for name, value in record.items() if value not in (None, "", [])}
    width = max(map(len, shown))
    write([f"{name:<{width}}  {cell(_READABLE.get(name, _same)(value))}" for name, value in shown.items()])
    write(f"restarted {_moment_of(one['at'])}: {one_line(one['cause'])}" for one in restarted)
    write(line for approval in asked for line in approval_lines(approval))
    return OK


def _same(value: object) -> object:
    return value


def _moment_of(at: Any) -> str:
    return format_moment(at, time.time())


_READABLE: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(("since", "started", "last_event", "until"), _moment_of),
    "memory": lambda size: f"{size / 2**20:.0f} MB",
    **dict.fromkeys(("cost_usd", "cost_today_usd"), money),
}
"""How fields of an agent are written for a person."""


# -- requests to agents


def _ask(options: Namespace) -> int:
    place, body = agent_of(options), dict[str, Any](prompt=_prompt(options.prompt))
    if options.limit < LONGEST:
        body["timeout"] = options.limit
    *_, end = place.client.stream("POST", place.at("turns"), body)
    turn = end.data["turn"]
    if (failure := turn["problem"]) is not None:
        raise problem_of(failure)
    reply = turn["answer"]
    if reply["text"]:
        write([printable(reply["text"]).rstrip("\n")])
    if reply["ok"]:
        return OK
    from proctor.cli.exit_status import status_of
    from proctor.cli.ui.verdict import phrase_of

    why = reply["error"] or reply["detail"] or ""
    complain(one_line(f"{place.name} {phrase_of(reply['outcome'])}{f': {why}' if why else ''}", WHOLE))
    return status_of(reply["outcome"])


def _prompt(word: Any) -> Any:
    return sys.stdin.read() if word == "-" else word


def _park(options: Namespace) -> int:
    options.until = time.time() + options.limit if options.limit < LONGEST else None
    return _post("park", ("reason", "until"), options)


def _post(rest: str, fields: Sequence[str], options: Namespace) -> int:
    """Send one request to each agent that is named, and print its result. `fields` of the options are its body."""
    status = OK
    places, body = agents_of(options), {field: _prompt(getattr(options, field)) for field in fields} or None
    for place in places:
        try:
            result = place.call("POST", rest, body)
        except ControlError as error:
            # the others are asked all the same
            complain(one_line(f"{place.name}: {error}", WHOLE))
            status = error.status
            continue
        # a receipt, or the record of the agent
        state = result.get("fate") or result["state"]
        why = result.get("why") or (result["evidence"] if state in AT_FAULT else "")
        write([one_line(f"{place.name}  {state}{f' ({why})' if why else ''}")])
        status = FAILED if state in ("refused", "expired") else status
    return status


# -- budgets


def _budget(options: Namespace) -> int:
    place = None if options.agent is None else agent_of(options)
    client = fleet_of(options) if place is None else place.client
    path = "/budget" if place is None else place.at("budget")
    if options.usd is None and options.per is None:
        record = client.get(path)
    elif options.usd == UNLIMITED:
        if options.per is not None:
            raise ValueError("--usd none removes the budget: leave --per out")
        record = client.call("DELETE", path)
    else:
        per = None if options.per is None else duration(options.per)
        usd = client.get(path)["usd"] if options.usd is None else options.usd
        if usd is None:
            raise ValueError("--per is the time of a budget: name its dollars too, with --usd")
        record = client.call("PUT", path, {"usd": usd} if per is None else {"usd": usd, "per": per})
    columns: Mapping[str, Column] = {
        "BUDGET OF": lambda budget: budget["agent"] or client.host.fleet,
        "SPENT": lambda budget: money(budget["spent_usd"]),
        "OF": lambda budget: money(budget["usd"]) or "no limit",
        "PER": lambda budget: "" if budget["per"] is None else format_duration(budget["per"]),
        "THEN": "then",
        "FREE AT": lambda budget: (
            "" if budget["until"] is None else format_moment(budget["until"], time.time())
        ),
    }
    return show(options.output, [record], columns)


# -- events


def _logs(options: Namespace) -> int:
    place = agent_of(options)
    path = place.at(f"events?since=0&follow={'true' if options.follow else 'false'}")
    lines = _raw_lines if options.raw else _event_lines(place.name)
    for event in place.client.stream("GET", path):
        if event.kind != "end":
            write(lines(event.data))
    return OK


def _raw_lines(event: Record) -> Sequence[str]:
    return [json.dumps(event)]


def _event_lines(agent: str) -> Callable[[Record], Sequence[str]]:
    from proctor.cli.ui.event_lines import event_lines  # the other verbs start without what it loads

    return event_lines(agent)


# -- fleets


def _reload(options: Namespace) -> int:
    body = {"dry_run": options.dry_run, "restart": options.restart}
    found = fleet_of(options).call("POST", "/reload", body)
    write(f"{kind} {name}" for kind in ("added", "removed") for name in found[kind])
    later = "" if options.dry_run else " goes on as before until it is restarted by reload --restart"
    for name in found["changed"]:
        write([f"changed {name}{' restarted' if name in found['restarted'] else later}"])
    write([f"{len(found['unchanged'])} unchanged"])
    for problem in found["problems"]:
        complain(one_line(problem, WHOLE))
    return FAILED if found["problems"] else OK


def _wait(options: Namespace) -> int:
    client = fleet_of(options)
    snapshot = client.get("/fleet")
    agents = {agent["name"]: agent for agent in snapshot["agents"]}
    path, awaited = f"/fleet/changes?since={snapshot['sequence']}", f"the end of fleet {client.host.fleet!r}"
    if options.state == "idle":
        awaited = f"a time when fleet {client.host.fleet!r} is idle"
        if all(map(_is_at_rest, agents.values())):
            return OK
    for event in client.stream("GET", path, seconds=options.limit, awaited=awaited):
        if event.kind == "snapshot":  # some agents have gone
            agents = {agent["name"]: agent for agent in client.get("/fleet")["agents"]}
        if event.kind == "agent":
            agents[event.data["name"]] = event.data
        is_news = event.kind in ("agent", "snapshot")
        if is_news and options.state == "idle" and all(map(_is_at_rest, agents.values())):
            return OK
    wait_ended(client.host, TIMEOUT)
    return OK


def _is_at_rest(agent: Record) -> bool:
    return agent["state"] in AT_REST and not agent["queued"]


def _down(options: Namespace) -> int:
    grace, client = duration(options.grace), fleet_of(options)
    client.call("POST", "/shutdown", {"grace": grace})
    if wait_ended(client.host, grace + options.limit):
        return OK
    host = client.host
    raise ControlError(
        f"fleet {host.fleet!r} (process {host.pid}) is still stopping; kill -TERM {host.pid} kills its agents",
        DEADLINE,
    )


COMMANDS: Mapping[str, Callable[[Namespace], int]] = {
    "ls": _ls,
    "ps": _ps,
    "top": _top,
    "completion": _completion,
    "tree": _tree,
    "describe": _describe,
    "logs": _logs,
    "attach": _attach,
    "ask": _ask,
    "send": partial(_post, "queue", ("prompt",)),
    "steer": partial(_post, "steer", ("text",)),
    "interrupt": partial(_post, "interrupt", ()),
    "stop": partial(_post, "stop", ()),
    "start": partial(_post, "start", ()),
    "restart": partial(_post, "restart", ()),
    "park": _park,
    "unpark": partial(_post, "unpark", ()),
    "kill": partial(_post, "kill", ()),
    "reset-failed": partial(_post, "reset", ()),
    "requests": _requests,
    "approvals": list_approvals,
    "approve": partial(decide, "allow"),
    "deny": partial(decide, "deny"),
    "answer": answer,
    "extend": extend,
    "reload": _reload,
    "budget": _budget,
    "wait": _wait,
    "down": _down,
}
"""The function of each verb."""
