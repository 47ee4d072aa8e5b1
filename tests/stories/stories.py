"""What happens between a host and a CLI, as stories that every dialect must tell with the same events.

A story is a script for the scripted agent, the host's moves, and the tokens that the events must come to. A token that
begins with a word in brackets, as `[deltas] ...`, is told only by a dialect that has that word; a story with `needs` is
told only by those. What a token is: see `tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from proctor.protocols import vocabulary as v

Step = Mapping[str, Any]
Move = tuple[type[v.Event], Callable[[Any], v.AnyRequest]]

PROMPT = "64a9f654-3bc5-44af-8708-23bfcb9a3eb{}"


def prompt(text: str, number: int = 0) -> v.Prompt:
    return v.Prompt(id=PROMPT.format(number), text=text)


def allow(asked: v.ApprovalRequested) -> v.AnyRequest:
    return v.Decision(id=asked.id, allow=True)


def refuse(asked: v.ApprovalRequested) -> v.AnyRequest:
    return v.Decision(id=asked.id, allow=False, message="not here")


def interrupt(_event: object) -> v.AnyRequest:
    return v.Interrupt(id=PROMPT.format(8))


def steer(_event: object) -> v.AnyRequest:
    return v.Steer(id=PROMPT.format(7), text="and hurry")


def give(asked: v.ToolRequested) -> v.AnyRequest:
    return v.ToolReturn(id=asked.id, text=f"{asked.tool} was given {asked.input['x']}")


def again(_event: object) -> v.AnyRequest:
    return prompt("two", 1)


@attrs.frozen(kw_only=True)
class Story:
    """One story. `moves` follow the first prompt: what is waited for, and what is then said. `ends`: how many turns end
    before the host lets go; with none it waits for the process to go by itself."""

    name: str
    script: Sequence[Step]
    tokens: Sequence[str]
    moves: Sequence[Move] = ()
    needs: frozenset[str] = frozenset()
    ends: int = 1


LS: Step = {"tool": "Bash", "input": {"command": "ls"}, "result": "a b"}
ASKED: Step = {**LS, "ask": True}
FINE = "end completed: fine"


def story(name: str, script: Sequence[Step], *tokens: str, **more: Any) -> Story:
    return Story(name=name, script=script, tokens=tokens, **more)


STORIES: Sequence[Story] = (
    story("a text", [{"reply": "fine"}], "begin", "[deltas] delta fine", "text fine", FINE),
    story(
        "a text in pieces",
        [{"say": "one two three", "deltas": 4}, {"reply": "fine", "deltas": 2}],
        *("begin", "[deltas] delta one two three", "text one two three"),
        *("[deltas] delta fine", "text fine", FINE),
    ),
    story(
        "a thought",
        [{"think": "hm, hm", "deltas": 2}, {"reply": "fine"}],
        *("begin", "[thinking] think hm, hm", "[deltas] delta fine", "text fine", FINE),
    ),
    story(
        "a tool",
        [{"say": "look"}, LS, {"reply": "fine"}],
        *("begin", "[deltas] delta look", "text look", "call #1 ls", "result #1 a b"),
        *("[deltas] delta fine", "text fine", FINE),
        needs=frozenset({"free tools"}),
    ),
    story(
        "a tool that fails",
        [{**LS, "error": True, "result": "no such folder"}, {"reply": "fine"}],
        *("begin", "call #1 ls", "failure #1", "[deltas] delta fine", "text fine", FINE),
        needs=frozenset({"free tools"}),
    ),
    story(
        "a tool that is allowed",
        [ASKED, {"reply": "fine"}],
        *("begin", "[tool first] call #1 ls", "asked ls", "[tool late] call #1 ls", "result #1 a b"),
        *("[deltas] delta fine", "text fine", FINE),
        needs=frozenset({"approvals"}),
        moves=[(v.ApprovalRequested, allow)],
    ),
    story(
        "a tool that is refused",
        [ASKED, {"reply": "fine"}],
        *("begin", "[tool first] call #1 ls", "asked ls", "[refusal shown] failure #1"),
        *("[deltas] delta fine", "text fine", FINE),
        needs=frozenset({"approvals", "goes on when refused"}),
        moves=[(v.ApprovalRequested, refuse)],
    ),
    story(
        "a question that an interrupt ends",
        [ASKED, {"reply": "never"}],
        *("begin", "[tool first] call #1 ls", "asked ls", "[abort shown] failure #1", "end interrupted"),
        needs=frozenset({"approvals", "interrupt"}),
        moves=[(v.ApprovalRequested, interrupt)],
    ),
    story(
        "two turns",
        [{"reply": "{turn}: {prompt}"}],
        *("begin", "[deltas] delta 1: one", "text 1: one", "end completed: 1: one"),
        *("begin", "[deltas] delta 2: two", "text 2: two", "end completed: 2: two"),
        needs=frozenset({"session"}),
        moves=[(v.TurnEnded, again)],
        ends=2,
    ),
    story(
        "an interrupt, and the session lives on",
        [{"say": "begun"}, {"sleep": 30}, {"reply": "never"}, {"turn": "2"}, {"reply": "{prompt}"}],
        *("begin", "[deltas] delta begun", "text begun", "end interrupted"),
        *("begin", "[deltas] delta two", "text two", "end completed: two"),
        needs=frozenset({"interrupt"}),
        moves=[(v.TextDelta, interrupt), (v.TurnEnded, again)],
        ends=2,
    ),
    story(
        "a turn that is steered",
        [{"say": "begun"}, {"listen": 30}, {"reply": "{steered}"}],
        *("begin", "[deltas] delta begun", "text begun", "[deltas] delta and hurry", "text and hurry"),
        "end completed: and hurry",
        needs=frozenset({"steer"}),
        moves=[(v.TextDelta, steer)],
    ),
    story(
        "a retry, then success",
        [{"retry": 1, "times": 2, "max": 5, "delay": 0.001}, {"reply": "fine"}],
        *("begin", "[retries] retry 1/5", "[retries] retry 2/5", "[deltas] delta fine", "text fine", FINE),
    ),
    story("a usage limit", [{"end": "limit", "resets": 60}], "begin", "[limits] limit", "end limit"),
    story("a refused key", [{"end": "authentication"}], "begin", "end authentication"),
    story("an API that fails", [{"end": "api_error"}], "begin", "end api_error"),
    story("an API that is overloaded", [{"end": "overloaded"}], "begin", "end overloaded"),
    story("a refusal of the model", [{"end": "model_refused"}], "begin", "end model_refused"),
    story("too long a prompt", [{"end": "prompt_too_long"}], "begin", "end prompt_too_long"),
    story("a model that is not there", [{"end": "model_not_found"}], "begin", "end model_not_found"),
    story(
        "a structured answer",
        [{"end": "completed", "structured": {"n": 42}}],
        *("begin", '[answer is text] [deltas] delta {"n":42}', '[answer is text] text {"n":42}'),
        'end completed: {"n":42} = {"n": 42}',
        needs=frozenset({"structured_output"}),
    ),
    story(
        "a tool of the host's",
        [{"host": "measure", "input": {"x": "this"}}, {"reply": "fine"}],
        *("begin", "call #1", "wanted measure this", "result #1 measure was given this"),
        *("[deltas] delta fine", "text fine", FINE),
        needs=frozenset({"host_tools"}),
        moves=[(v.ToolRequested, give)],
    ),
    story(
        "a death in mid-turn",
        [{"say": "begun"}, {"fault": "crash"}, {"reply": "never"}],
        *("begin", "[deltas] delta begun", "[whole blocks] text begun"),
        ends=0,
    ),
    story(
        "lines that are no frames",
        [{"say": "begun"}, {"fault": "garbage:2"}, {"reply": "fine"}],
        *("begin", "[deltas] delta begun", "[whole blocks] text begun", "odd", "odd"),
        *("[text at the end] text begun", "[deltas] delta fine", "text fine", FINE),
    ),
    story(
        "a line without an end",
        [{"say": "begun"}, {"fault": "cut"}],
        *("begin", "[deltas] delta begun", "[whole blocks] text begun", "odd"),
        ends=0,
    ),
    story(
        "a line that is too long",
        [{"say": "begun"}, {"fault": "oversized:3KB"}, {"reply": "fine"}],
        *("begin", "[deltas] delta begun", "[whole blocks] text begun", "odd"),
        *("[text at the end] text begun", "[deltas] delta fine", "text fine", FINE),
    ),
    story(
        "a turn that nobody asked for",
        [{"reply": "fine"}, {"turn": "late", "unasked": 0.01}, {"reply": "by itself"}],
        *("begin", "[deltas] delta fine", "text fine", FINE),
        *("begin unasked", "[deltas] delta by itself", "text by itself", "end completed: by itself"),
        needs=frozenset({"unasked turns"}),
        ends=2,
    ),
)
