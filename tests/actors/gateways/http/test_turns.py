from __future__ import annotations

from tests.actors.gateways.http.serving import served


async def test_a_turn_is_asked_for_and_answered_as_json() -> None:
    async with served() as server:
        response = await server.ask("hello")
        record = response.json()
    assert response.status_code == 200
    assert (record["state"], record["answer"]["ok"], record["answer"]["text"]) == ("ended", True, "1: hello")
    assert response.headers["location"] == record["url"]


async def test_events_reach_the_client_in_order_and_the_last_is_the_end_R092() -> None:
    async with served() as server:
        async with server.follow("/agents/a/turns", method="POST", json={"prompt": "hello"}) as found:
            got = [frame async for frame in found]
        logged = await server.read("/agents/a/events?since=0&follow=false")
    ids = [frame.id for frame in got if frame.id is not None]
    assert (got[0].event, got[-1].event) == ("turn", "end")
    assert ids == list(range(ids[0], ids[-1] + 1))
    assert got[1:-1] == [frame for frame in logged if frame.id in ids]
    assert got[-2].event == "turn_ended"
    assert got[-1].data["turn"]["answer"]["text"] == "1: hello"
    assert got[-1].data["duration"] >= 0
