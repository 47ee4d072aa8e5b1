from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proctor.actors.errors import BadOption
from proctor.cli.web import token_of
from tests.proctor.command import Running, processes_with, proctor, running
from tests.proctor.test_up import HANGS, agent, fleet

__all__ = ["fleet"]

Fleet = Callable[..., Path]
ANSWERS = ('{"reply": "All is well, {prompt}"}',)
GRACE = 1.0


def address(command: Running) -> str:
    """Where it says that it serves."""
    line = command.said(b"serving", command.err).splitlines()[-1].decode()
    found = re.search(r"serving fleet on (\S+)", line)
    assert found, line
    return found[1]


def ready(client: httpx2.Client) -> dict[str, Any]:
    """Its word about itself, once the agents have started."""
    limit = time.monotonic() + 60
    said: dict[str, Any]
    while (said := client.get("/readyz").json())["why"] == "the agents start":
        assert time.monotonic() < limit
        time.sleep(0.05)
    return said


def test_a_fleet_is_served_until_it_is_told_to_stop(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"by the file"'), a=ANSWERS)
    with running("web", str(path), "--listen", "127.0.0.1:0", "--metrics", home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            assert ready(client)["checks"] == {"a": None}
            answer = client.post("/agents/a/turns", json={"prompt": "you"}).json()["answer"]
            turns = client.get("/agents/a/turns").json()["turns"]
            metrics = client.get("/metrics").text
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert answer["text"] == "All is well, you"
    assert [turn["answer"]["text"] for turn in turns] == ["All is well, by the file", "All is well, you"]
    assert "# TYPE" in metrics


def test_a_unix_socket_is_served_and_goes_with_the_command(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    where = home / "web.sock"
    with running("web", str(path), "--listen", f"unix:{where}", home=home) as command:
        assert address(command) == f"unix:{where}"
        transport = httpx2.HTTPTransport(uds=str(where))
        with httpx2.Client(base_url="http://localhost", transport=transport, timeout=30) as client:
            assert ready(client)["ready"]
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert not where.exists()


def test_sigterm_under_load_tells_every_client_why_and_leaves_nobody_R183(home: Path, fleet: Fleet) -> None:
    names = [f"a{number}" for number in range(20)]
    path = fleet(*(agent(name, script='"hangs.ndjson"') for name in names), hangs=HANGS)
    ends: dict[str, str] = {}
    begun = threading.Semaphore(0)

    def follow(base: str, name: str) -> None:
        with (
            httpx2.Client(base_url=base, timeout=60, verify=False) as client,
            client.stream(
                "POST",
                f"/agents/{name}/turns",
                json={"prompt": "x"},
                headers={"accept": "text/event-stream"},
            ) as response,
        ):
            event = ""
            for line in response.iter_lines():
                event = line.removeprefix("event: ") if line.startswith("event: ") else event
                if line == "event: text":
                    begun.release()
                elif event == "end" and line.startswith("data: "):
                    ends[name] = line

    with running("web", str(path), "--listen", "127.0.0.1:0", "--grace", f"{GRACE}s", home=home) as command:
        base = address(command)
        with httpx2.Client(base_url=base, timeout=60, verify=False) as client:
            ready(client)
            threads = [threading.Thread(target=follow, args=(base, name)) for name in names]
            for thread in threads:
                thread.start()
            for _ in names:
                assert begun.acquire(timeout=60)
            command.signal(signal.SIGTERM)
            told = time.monotonic()
            time.sleep(GRACE / 4)
            refused = client.post("/agents/a0/turns", json={"prompt": "more"})
        status = command.end()
        took = time.monotonic() - told
        for thread in threads:
            thread.join(60)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert set(ends) == set(names)
    assert all("the server is stopping" in end for end in ends.values())
    assert status == 0
    assert took < GRACE + 1, took
    assert processes_with(str(path.parent)) == []


def test_what_cannot_be_served_is_one_line_before_anything_starts(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = str(taken.getsockname()[1])
        for words, said in {
            ("--listen", "0.0.0.0:0"): "needs a token",
            ("--listen", taken_port): "Address already in use",
            ("--grace", "soon"): "--grace: expected a duration",
        }.items():
            done = proctor("web", str(path), *words, home=home)
            assert (done.status, done.out) == (2, "")
            assert said in done.complaint


@pytest.mark.parametrize(
    ("value", "said"),
    [("", "is not set, or empty"), ("@/nowhere/at/all", "'/nowhere/at/all' cannot be read")],
)
def test_a_token_that_is_not_there_is_named(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", value)
    with pytest.raises(BadOption, match=said):
        token_of("TOKEN")


def test_the_token_of_a_file_is_asked_for(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    (home / "token").write_text("0123456789abcdef\n")
    words = ("web", str(path), "--listen", "127.0.0.1:0", "--token-env", "TOKEN")
    with running(*words, home=home, env={"TOKEN": f"@{home / 'token'}"}) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            headers = {"authorization": "Bearer 0123456789abcdef"}
            assert client.get("/agents").status_code == 401
            assert client.get("/agents", headers=headers).status_code == 200
        command.signal(signal.SIGTERM)
        assert command.end() == 0
