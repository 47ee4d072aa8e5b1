"""The verbs about approvals: list them, decide them, answer what they ask, give them more time."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from proctor.actors.durations import duration, format_duration
from proctor.cli.addressing import Place, Record, agent_of, fleet_of
from proctor.cli.control_client import ControlError
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.ui.listing import Column, show, write
from proctor.cli.ui.text import one_line, printable, tool_use


def list_approvals(options: Namespace) -> int:
    """List the open approvals of a fleet."""
    columns: Mapping[str, Column] = {
        "AGENT": "agent",
        "ID": "id",
        "TOOL": "tool",
        "LEFT": lambda approval: format_duration(approval["seconds_left"]),
        "CHANGES": lambda approval: _size_of(approval["diff"]),
        "INPUT": lambda approval: json.dumps(approval["input"], ensure_ascii=False),
    }
    return show(options.output, fleet_of(options).get("/approvals")["approvals"], columns)


def _size_of(diff: str | None) -> str:
    """The lines that a diff adds and removes, as `+3 -1`."""
    lines = [] if diff is None else [line for line in diff.splitlines() if line[:3] not in ("+++", "---")]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return "" if diff is None else f"+{added} -{removed}"


def approval_lines(approval: Record) -> Iterator[str]:
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


def decide(decision: str, options: Namespace) -> int:
    """Allow or deny a tool."""
    place = agent_of(options)
    id = options.id or _only_approval(place)
    decision = "always" if getattr(options, "always", False) else decision
    body = {"decision": decision, "message": getattr(options, "message", "")}
    settled = place.call("POST", f"approvals/{quote(id, safe='')}", body)["settled"]
    return _report(place, id, settled, "denied" if decision == "deny" else "allowed")


def _report(place: Place, id: str, settled: str, expected: str) -> int:
    write([f"{place.name}  {id}  {settled}"])
    return OK if settled == expected else FAILED


def answer(options: Namespace) -> int:
    """Answer the questions that an agent asks, each with an option, its number, or a text."""
    place = agent_of(options)
    approval = _question_of(place, options.id)
    body = {"decision": "allow", "answers": answers_to(approval, options.answers)}
    settled = place.call("POST", f"approvals/{quote(approval['id'], safe='')}", body)["settled"]
    return _report(place, approval["id"], settled, "allowed")


def answers_to(approval: Record, typed: Sequence[str]) -> list[str]:
    """The answers to the questions of an approval, with the label of an option in place of its number. Raises `ControlError`."""
    from proctor.actors.tools.menus import MenuQuestion  # the other verbs start without what it loads

    questions = approval["questions"]
    # several answers to a single question are the options that are chosen
    asked = questions * len(typed) if len(questions) == 1 and questions[0]["multiple"] else questions
    if len(asked) != len(typed):
        texts = "; ".join(one_line(question["text"]) for question in questions)
        raise ControlError(
            f"{approval['agent']} asks {len(questions)}: {texts}. Give an answer for each, in order"
        )
    answers = list[str]()
    for question, text in zip(asked, typed, strict=True):
        options = tuple((option["label"], "") for option in question["options"])
        answers.append(MenuQuestion(question["text"], "", options, question["multiple"]).answer(text))
    return answers


def _question_of(place: Place, id: str | None) -> Record:
    """The open approval of this id that asks something; without an id the only one."""
    found = [one for one in _open_approvals(place) if one["questions"] and id in (None, one["id"])]
    if not found:
        named = "" if id is None else f" {id!r}"
        raise ControlError(f"{place.name} has no open question{named}; proctor approvals lists what is open")
    if len(found) > 1:
        ids = ", ".join(one["id"] for one in found)
        raise ControlError(f"{place.name} has {len(found)} open questions: {ids}; name one with --id")
    return found[0]


def extend(options: Namespace) -> int:
    """Put off the deadline of an approval."""
    seconds, place = duration(options.time), agent_of(options)
    id = options.id or _only_approval(place)
    approval = place.call("POST", f"approvals/{quote(id, safe='')}/deadline", {"seconds": seconds})
    write([f"{place.name}  {id}  {format_duration(approval['seconds_left'])} left"])
    return OK


def _only_approval(place: Place) -> str:
    ids = [one["id"] for one in _open_approvals(place)]
    if not ids:
        raise ControlError(f"{place.name} has no open approval; proctor approvals lists those of all agents")
    if len(ids) > 1:
        raise ControlError(f"{place.name} has {len(ids)} open approvals: {', '.join(ids)}; name one")
    return str(ids[0])


def _open_approvals(place: Place) -> list[Record]:
    return [one for one in place.client.get("/approvals")["approvals"] if one["agent"] == place.name]
