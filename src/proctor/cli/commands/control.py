"""The verbs: clients of the control sockets of running fleets."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from proctor.actors.client.sockets import TIMEOUT, Host, running_hosts
from proctor.actors.durations import UNLIMITED, duration, format_duration, format_moment, limit
from proctor.cli.control_client import LONGEST, Client, ControlError, agent_path, problem_of, wait_ended
from proctor.cli.exit_status import DEADLINE, FAILED, OK, USAGE
from proctor.cli.loading import loading
from proctor.cli.ui.need import AT_REST, need
from proctor.cli.ui.text import WHOLE, aligned, money, one_line, printable, tool_use
from proctor.cli.usage_errors import complain, missing_of

Record = Mapping[str, Any]
Row = tuple[str, ...]
Column = str | Callable[[Record], str]
"""A field of a record, or a function that makes the text of a cell."""
AT_FAULT = ("parked", "backoff", "failed")
"""The states whose reason the operator of an agent has to know."""


class Place(NamedTuple):
    """An agent of a running fleet: the client of its host, and its record."""

    client: Client
    record: Record

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.record["name"])

    @property
    def full_name(self) -> str:
        """Its name with that of its fleet."""
        return f"{self.client.host.fleet}/{self.name}"

    def call(self, method: str, rest: str, body: Record | None = None) -> Any:
        """Send a request about it. Raises `ControlError`."""
        return self.client.call(method, self.at(rest), body)

    def at(self, rest: str) -> str:
        """The path of a request about it."""
        return agent_path(self.name, rest)


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


# -- what is named


def fleet_of(options: Namespace) -> Client:
    """The running fleet that is named; without a name the only one. Raises `ControlError`."""
    hosts = _hosts()
    named = [host for host in hosts if options.fleet in (None, host.fleet)]
    if not named:
        raise ControlError(f"no fleet {options.fleet!r} runs under this user; these do: {_names(hosts)}")
    if len(named) > 1:
        raise ControlError(f"{len(named)} fleets run: {_names(named)}; name one")
    return Client(named[0], options.timeout)


def _hosts() -> list[Host]:
    if not (hosts := running_hosts()):
        raise ControlError("no fleet runs under this user; start one with proctor up FLEET.toml")
    return hosts


def _names(hosts: Sequence[Host]) -> str:
    return ", ".join(host.fleet for host in hosts)


def agents_of(options: Namespace) -> list[Place]:
    """The agents that are named, in one fleet or in all. Raises `ControlError`."""
    fleet, _, name = options.agent.rpartition("/")
    hosts = [host for host in _hosts() if fleet in ("", host.fleet)]
    clients = [Client(host, options.timeout) for host in hosts]
    places = [Place(client, record) for client in clients for record in client.get("/fleet")["agents"]]
    if set(name) & set("*?["):
        found = [place for place in places if fnmatchcase(place.name, name)]
    else:
        exact = [place for place in places if place.name == name]
        found = exact or [place for place in places if place.name.startswith(name)]
        if len(found) > 1:
            raise ControlError(f"{options.agent!r} is the name of {_listed(found)}; name one")
    if not found:
        where = f"fleet {fleet!r}" if fleet else "a fleet that runs"
        raise ControlError(
            f"no agent of {where} has the name {options.agent!r}; these are there: {_listed(places)}"
        )
    return found


def _listed(places: Sequence[Place]) -> str:
    return ", ".join(place.full_name for place in places) or "none"


def agent_of(options: Namespace) -> Place:
    """The one agent that is named. Raises `ControlError`."""
    first, *others = agents_of(options)
    if others:
        raise ControlError(f"{options.agent!r} is the name of {_listed([first, *others])}; name one")
    return first


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
    return _show(options.output, records, columns)


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
    return _show(options.output, agents, columns)


def _completion(options: Namespace) -> int:
    if options.kind == "fleets":
        _write(host.fleet for host in running_hosts())
    elif options.kind == "agents":
        _write(_agent_names([Client(host, options.timeout) for host in running_hosts()]))
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


def _need(agent: Record) -> tuple[int, str]:
    return need(agent["state"], agent["approvals"]), agent["name"]


def _approvals(options: Namespace) -> int:
    columns: Mapping[str, Column] = {
        "AGENT": "agent",
        "ID": "id",
        "TOOL": "tool",
        "LEFT": lambda approval: format_duration(approval["seconds_left"]),
        "CHANGES": lambda approval: _size_of(approval["diff"]),
        "INPUT": lambda approval: json.dumps(approval["input"], ensure_ascii=False),
    }
    return _show(options.output, fleet_of(options).get("/approvals")["approvals"], columns)


def _size_of(diff: str | None) -> str:
    """The lines that a diff adds and removes, as `+3 -1`."""
    lines = [] if diff is None else [line for line in diff.splitlines() if line[:3] not in ("+++", "---")]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return "" if diff is None else f"+{added} -{removed}"


def _tree(options: Namespace) -> int:
    snapshot = fleet_of(options).get("/fleet")
    agents = {agent["name"]: agent for agent in snapshot["agents"]}
    _write(_branch(snapshot["tree"], agents, 0))
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
    record = {**place.record, "open_approvals": [one for one in approvals if one["agent"] == place.name]}
    if options.output != "table":
        return _show(options.output, [record], {})
    asked = record.pop("open_approvals")
    shown = {name: value for name, value in record.items() if value not in (None, "", [])}
    width = max(map(len, shown))
    _write([f"{name:<{width}}  {_text(_READABLE.get(name, _same)(value))}" for name, value in shown.items()])
    _write(line for approval in asked for line in _approval_lines(approval))
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


def _approval_lines(approval: Record) -> Iterator[str]:
    """All of an approval: what the tool would do, the questions that it asks, and what it would change."""
    yield ""
    yield f"approval {approval['id']}: {tool_use(approval['tool'], approval['input'])}"
    yield f"  {', '.join(approval['choices'])}; {format_duration(approval['seconds_left'])} left"
    for question in approval["questions"]:
        yield f"  {one_line(question['text'])}"
        for option in question["options"]:
            yield f"    - {one_line(': '.join(filter(None, option.values())))}"
    for line in (approval["diff"] or "").splitlines():
        yield f"  {printable(line)}"


def _show(output: str, records: Sequence[Record], columns: Mapping[str, Column]) -> int:
    """Write records in an output format. `columns` has the field of each title of the table, or a function of the record."""
    if output == "table":
        _write(aligned([tuple(columns), *(_row(record, columns.values()) for record in records)]))
    elif output == "json":
        _write([json.dumps(records, indent=2)])
    else:
        _write(map(json.dumps, records))
    return OK


def _row(record: Record, columns: Iterable[Column]) -> Row:
    return tuple(_text(record[c]) if isinstance(c, str) else _text(c(record)) for c in columns)


def _text(value: object) -> str:
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "" if value is None else one_line(whole)


def _write(lines: Iterable[str]) -> None:
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


# -- requests to agents


def _ask(options: Namespace) -> int:
    place, body = agent_of(options), dict[str, Any](prompt=_prompt(options.prompt))
    if options.limit < LONGEST:
        body["timeout"] = options.limit
    *_, end = place.client.stream("POST", place.at("turns"), body)
    turn = end.data["turn"]
    if (failure := turn["problem"]) is not None:
        raise problem_of(failure)
    answer = turn["answer"]
    if answer["text"]:
        _write([printable(answer["text"]).rstrip("\n")])
    if answer["ok"]:
        return OK
    from proctor.cli.exit_status import status_of
    from proctor.cli.ui.verdict import phrase_of

    why = answer["error"] or answer["detail"] or ""
    complain(one_line(f"{place.name} {phrase_of(answer['outcome'])}{f': {why}' if why else ''}", WHOLE))
    return status_of(answer["outcome"])


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
        _write([one_line(f"{place.name}  {state}{f' ({why})' if why else ''}")])
        status = FAILED if state in ("refused", "expired") else status
    return status


# -- approvals


def _decide(decision: str, options: Namespace) -> int:
    place = agent_of(options)
    id = options.id or _only_approval(place)
    decision = "always" if getattr(options, "always", False) else decision
    body = {"decision": decision, "message": getattr(options, "message", "")}
    settled = place.call("POST", f"approvals/{quote(id, safe='')}", body)["settled"]
    expected = "denied" if decision == "deny" else "allowed"
    _write([f"{place.name}  {id}  {settled}"])
    return OK if settled == expected else FAILED


def _extend(options: Namespace) -> int:
    seconds, place = duration(options.time), agent_of(options)
    id = options.id or _only_approval(place)
    approval = place.call("POST", f"approvals/{quote(id, safe='')}/deadline", {"seconds": seconds})
    _write([f"{place.name}  {id}  {format_duration(approval['seconds_left'])} left"])
    return OK


def _only_approval(place: Place) -> str:
    ids = [one["id"] for one in place.client.get("/approvals")["approvals"] if one["agent"] == place.name]
    if not ids:
        raise ControlError(f"{place.name} has no open approval; proctor approvals lists those of all agents")
    if len(ids) > 1:
        raise ControlError(f"{place.name} has {len(ids)} open approvals: {', '.join(ids)}; name one")
    return str(ids[0])


# -- budgets


def _budget(options: Namespace) -> int:
    place = None if options.agent is None else agent_of(options)
    client = fleet_of(options) if place is None else place.client
    path = "/budget" if place is None else place.at("budget")
    if options.usd is None and options.per is None:
        record = client.get(path)
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
    return _show(options.output, [record], columns)


# -- events


def _logs(options: Namespace) -> int:
    place = agent_of(options)
    path = place.at(f"events?since=0&follow={'true' if options.follow else 'false'}")
    lines = _raw_lines if options.raw else _event_lines(place.name)
    for event in place.client.stream("GET", path):
        if event.kind != "end":
            _write(lines(event.data))
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
    _write(f"{kind} {name}" for kind in ("added", "removed") for name in found[kind])
    later = "" if options.dry_run else " goes on as before until it is restarted by reload --restart"
    for name in found["changed"]:
        _write([f"changed {name}{' restarted' if name in found['restarted'] else later}"])
    _write([f"{len(found['unchanged'])} unchanged"])
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
    "approvals": _approvals,
    "approve": partial(_decide, "allow"),
    "deny": partial(_decide, "deny"),
    "extend": _extend,
    "reload": _reload,
    "budget": _budget,
    "wait": _wait,
    "down": _down,
}
"""The function of each verb."""
