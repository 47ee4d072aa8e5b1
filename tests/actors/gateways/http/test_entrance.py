from __future__ import annotations

from typing import Any

import pytest

from proctor.actors.errors import BadOption
from proctor.actors.gateways.http import AuthMiddleware
from proctor.actors.web_server.listening import endpoint
from tests.actors.gateways.http.serving import served

TOKEN = "0123456789abcdef-é"
PAGE = "https://page.example"


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nobody is let in")


@pytest.mark.parametrize(
    ("where", "token", "why"),
    [
        ("0.0.0.0:80", None, "needs a token"),
        ("[::]:80", None, "needs a token"),
        ("192.0.2.1:80", None, "needs a token"),
        ("127.0.0.1:80", "short", "16 characters"),
        ("127.0.0.1:80", "", "16 characters"),
    ],
)
def test_an_address_that_others_can_reach_is_never_open(where: str, token: str | None, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        AuthMiddleware(nothing, endpoint(where), token=token)


async def test_a_name_that_was_made_to_point_here_is_refused() -> None:
    async with served() as server:
        for host in (
            "evil.example",
            "evil.example:80",
            "",
            "localhost.evil.example",
            "[::2]:80",
            "[::1].evil.example",
            "[::1]evil",
            "localhost:x",
            "[::1",
        ):
            response = await server.client.get("/agents", headers={"host": host})
            assert (response.status_code, response.json()["where"]) == (421, "Host")
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80"):
            assert (await server.client.get("/agents", headers={"host": host})).status_code == 200


async def test_a_page_is_refused_unless_its_origin_is_allowed() -> None:
    async with served(entrance={"origins": [PAGE]}) as server:
        for origin in ("null", "https://other.example", f"{PAGE}.evil.example"):
            response = await server.client.get("/agents", headers={"origin": origin})
            assert (response.status_code, response.json()["where"]) == (403, "Origin")
            assert "access-control-allow-origin" not in response.headers
        good = await server.client.get("/agents", headers={"origin": PAGE})
        preflight = await server.client.options("/agents/a/turns", headers={"origin": PAGE})
    assert (good.status_code, good.headers["access-control-allow-origin"]) == (200, PAGE)
    assert (preflight.status_code, preflight.headers["access-control-allow-methods"]) == (
        204,
        "GET, POST, DELETE",
    )


async def test_with_a_token_every_request_but_the_sign_of_life_carries_it() -> None:
    async with served(entrance={"token": TOKEN}) as server:
        alive = await server.client.get("/healthz")
        for given in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
            for path in ("/agents", "/readyz", "/openapi.json", "/nothing"):
                response = await server.client.get(path, headers={b"authorization": given.encode()})
                assert response.status_code == 401, (given, path)
                assert response.headers["www-authenticate"].startswith("Bearer")
        good = await server.client.get("/agents", headers={b"authorization": f"bearer {TOKEN}".encode()})
    assert (alive.status_code, good.status_code) == (200, 200)


async def test_a_websocket_is_refused() -> None:
    said: list[object] = []

    async def send(message: object) -> None:
        said.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    await AuthMiddleware(nothing, endpoint("127.0.0.1:80"))({"type": "websocket"}, receive, send)
    assert said == [{"type": "websocket.close", "code": 1000}]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8080", "http://localhost:8080", 200),  # through a tunnel to the socket
        ("localhost:8080", "http://localhost:81", 403),
        ("evil.example", "http://evil.example", 403),  # a name that was made to point to the tunnel
        ("", "http://", 403),
    ],
)
async def test_a_socket_takes_requests_of_its_own_page_under_a_name_of_this_machine_only(
    host: str, origin: str, status: int
) -> None:
    statuses: list[int] = []

    async def accept(scope: object, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        statuses.extend(filter(None, [message.get("status")]))

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    headers = [(b"host", host.encode()), (b"origin", origin.encode())]
    scope = {"type": "http", "method": "POST", "path": "/agents/a/stop", "headers": headers}
    await AuthMiddleware(accept, endpoint("unix:/nowhere"))(scope, receive, send)
    assert statuses == [status]
