from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio

import proctor
from proctor.actors.transport.memory import PeerStreams
from tests.actors.gateways.http.serving import Served, served, spoken
from tests.protocols.lines import INIT, ended, line, reply

ASKS = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "touch x"}, "tool_use_id": "t"}


async def asks(side: PeerStreams, request: Mapping[str, Any] = ASKS) -> int | None:
    """Asks whether a tool may run at each prompt; its answer is what it was told."""
    async for said in side.lines():
        frame: dict[str, Any] = json.loads(said)
        if frame["type"] == "control_request":
            await side.send_all(reply(frame["request_id"], pid=1))
        elif frame["type"] == "control_response":
            result = json.dumps(frame["response"]["response"], sort_keys=True)
            await side.send_all(ended(subtype="success", is_error=False, result=result))
        else:
            await side.send_all(INIT + line(type="control_request", request_id="q 1", request=request))
    return None


@pytest.mark.parametrize(
    ("body", "settled", "told"),
    [
        ({"decision": "allow", "input": {"command": "true"}}, "allowed", '"command": "true"'),
        ({"decision": "deny", "message": "not today"}, "denied", '"message": "not today"'),
    ],
)
async def test_a_tool_that_waits_is_listed_followed_and_decided(
    body: dict[str, Any], settled: str, told: str
) -> None:
    async with (
        served(spoken(far_end=asks, permission="ask")) as server,
        server.follow("/agents/a/turns", method="POST", body={"prompt": "go"}) as turn,
        server.follow("/agents/a/approvals") as found,
    ):
        approval = (await anext(found)).data
        listed = (await server.client.get("/agents/a/approvals")).json()["approvals"]
        decided = await server.client.post("/agents/a/approvals/q%201", json=body)
        again = await server.client.post("/agents/a/approvals/q%201", json=body)
        end = [frame async for frame in turn][-1]
    assert [one["id"] for one in listed] == ["q 1"] == [approval["id"]]
    assert (approval["tool"], approval["input"]) == ("Bash", {"command": "touch x"})
    assert 0.0 < approval["seconds_left"] < 1e5
    assert decided.json() == {"id": "q 1", "settled": settled}
    assert (again.status_code, again.json()["type"]) == (404, "urn:proctor:problem:no-such-question")
    assert told in end.data["turn"]["answer"]["text"]


async def test_an_agent_whose_policy_answers_has_no_questions() -> None:
    async with served(spoken(permission="deny")) as server:
        listed = await server.client.get("/agents/a/approvals")
        followed = await server.client.get("/agents/a/approvals", headers={"accept": "text/event-stream"})
    assert (listed.status_code, followed.status_code) == (422, 422)
    assert listed.json()["type"] == "urn:proctor:problem:not-possible"


async def test_an_approval_says_what_can_be_decided_and_is_given_more_time() -> None:
    async with served(spoken(far_end=asks, permission="ask", approval_deadline=60.0)) as server:
        await server.client.post("/agents/a/queue", json={"prompt": "go"})
        approval = await opened(server)
        assert (approval["choices"], approval["diff"]) == (["allow", "deny", "always"], None)
        assert abs(approval["asked"] - time.time()) < 20
        longer = await server.client.post("/agents/a/approvals/q%201/deadline", json={"seconds": 3600})
        assert 3500 < longer.json()["seconds_left"] <= 3600
        assert (await opened(server))["seconds_left"] > 3500
        wrong = await server.client.post("/agents/a/approvals/q%201/deadline", json={"seconds": 0})
        gone = await server.client.post("/agents/a/approvals/x/deadline", json={"seconds": 5})
    assert (wrong.status_code, gone.status_code) == (422, 404)


async def opened(server: Served) -> dict[str, Any]:
    """The open approval, as soon as there is one."""
    while not (found := (await server.client.get("/approvals")).json()["approvals"]):  # noqa: ASYNC110
        await trio.sleep(0.01)
    [approval] = found
    return dict(approval)


async def test_a_tool_that_is_allowed_for_always_is_told_so_in_the_words_of_its_command_line() -> None:
    async with served(spoken(far_end=asks, permission="ask")) as server:
        await server.client.post("/agents/a/queue", json={"prompt": "go"})
        await opened(server)
        body = {"decision": "always"}
        decided = await server.client.post("/agents/a/approvals/q%201", json=body)
        answer = await turn_text(server)
    assert decided.json() == {"id": "q 1", "settled": "allowed"}
    assert '"updatedPermissions"' in answer


async def turn_text(server: Served) -> str:
    """The text of the turn that ended."""
    async with server.sup.agent("a").events(since=0) as events:
        async for event in events:
            if isinstance(event, proctor.TurnEnded):
                return event.text or ""
    raise AssertionError("no turn has ended")


QUESTION = {"question": "Which?", "header": "Pick", "options": [{"label": "A", "description": "a"}]}
ASKS_USER = {
    "subtype": "can_use_tool",
    "tool_name": "AskUserQuestion",
    "input": {"questions": [{**QUESTION, "multiSelect": False}]},
    "requires_user_interaction": True,
}


async def test_a_question_to_the_person_is_shown_with_its_options_and_answered() -> None:
    far_end = partial(asks, request=ASKS_USER)
    async with served(spoken(far_end=far_end, permission="ask")) as server:
        await server.client.post("/agents/a/queue", json={"prompt": "go"})
        approval = await opened(server)
        path = "/agents/a/approvals/q%201"
        many = await server.client.post(path, json={"decision": "allow", "answers": ["A", "B"]})
        lasting = await server.client.post(path, json={"decision": "always"})
        decided = await server.client.post(path, json={"decision": "allow", "answers": ["A"]})
        answer = await turn_text(server)
    shown = {"text": "Which?", "header": "Pick", "options": [{"label": "A", "description": "a"}]}
    assert approval["question"] == {**shown, "multiple": False} == approval["questions"][0]
    assert (many.status_code, lasting.status_code, decided.status_code) == (422, 422, 200)
    assert '"answers": {"Which?": "A"}' in answer


async def test_the_approvals_of_all_agents_are_followed_to_their_ends() -> None:
    specs = [spoken(name, asks, permission="ask") for name in ("a", "b")]
    async with served(*specs, heartbeat=0.05) as server, server.follow("/approvals") as frames:
        await server.client.post("/agents/b/queue", json={"prompt": "go"})
        first = await anext(frames)
        await server.client.post("/agents/b/approvals/q%201/deadline", json={"seconds": 3600})
        longer = await anext(frames)
        await server.client.post("/agents/b/approvals/q%201", json={"decision": "deny"})
        end = await anext(frames)
        async with server.follow("/approvals") as late:
            await server.client.post("/agents/a/queue", json={"prompt": "go"})
            assert (await anext(late)).data["agent"] == "a"
        await server.gateway.drain(0.0)
        rest = [frame async for frame in frames]
    assert (first.event, first.data["agent"], first.data["tool"]) == ("approval", "b", "Bash")
    assert (longer.event, longer.data["seconds_left"] > 3500) == ("approval", True)
    assert (end.event, end.data) == ("settled", {"agent": "b", "id": "q 1", "settled": "denied"})
    assert rest[-1].event == "end"
