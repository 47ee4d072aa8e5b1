from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.actors.transport.memory import PeerStreams
from tests.actors.gateways.http.serving import served, spoken
from tests.protocols.lines import INIT, ended, line, reply

ASKS = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "touch x"}, "tool_use_id": "t"}


async def asks(side: PeerStreams) -> int | None:
    """Asks whether a tool may run at each prompt; its answer is what it was told."""
    async for said in side.lines():
        frame: dict[str, Any] = json.loads(said)
        if frame["type"] == "control_request":
            await side.send_all(reply(frame["request_id"], pid=1))
        elif frame["type"] == "control_response":
            result = json.dumps(frame["response"]["response"], sort_keys=True)
            await side.send_all(ended(subtype="success", is_error=False, result=result))
        else:
            await side.send_all(INIT + line(type="control_request", request_id="q 1", request=ASKS))
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
