"""What a server over stdio says of itself, and how many agents of each kind it has at work."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.mcp_client import INITIALIZE, READY, calls, written
from tests.proctor.command import proctor
from tests.proctor.scripts import ANSWERS, Fleet, agent
from tests.proctor.test_serve import started, told


def samples(page: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(page)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_a_server_over_stdio_says_beside_it_how_it_is_and_what_it_counts(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    words = ("--fleet", str(path), "--agents", f"scripted:{path.parent / 'a.ndjson'}", "--metrics")
    beside = ("--probes", "127.0.0.1:0", "--limit", "4", "--limit", "scripted=2")
    with started(*words, *beside, home=home) as command:
        base = told(command, r"serves probes at (http://\S+)")
        token = told(command, r"Bearer (\S+)")
        command.stdin.write(
            written(INITIALIZE, READY, calls(1, "ask_a", prompt="x"), calls(2, "scripted", prompt="y"))
        )
        command.stdin.flush()
        answers = [json.loads(command.out.readline()) for _ in range(3)]
        with httpx2.Client(base_url=base, timeout=30, verify=False) as client:
            alive, strange = client.get("/healthz"), client.get("/metrics")
            client.headers["authorization"] = f"Bearer {token}"
            ready, scrape, none = (client.get(f"/{name}") for name in ("readyz", "metrics", "mcp"))
        command.stdin.close()
        assert command.end(20) == 0
        assert command.out.read() == b""
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
    assert (alive.status_code, strange.status_code, none.status_code) == (200, 401, 404)
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    found = samples(scrape.text)
    assert found["proctor_mcp_calls_total", "ok", "ask_a"] == 1
    assert found["proctor_pool_slots", "scripted"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--http", "0", "--probes", "0"), "--probes is for a server over stdio"),
        (("serve", "--metrics"), "or --probes with stdio"),
        (("serve", "--probes", "0.0.0.0:0", "--no-token"), "needs a token"),
        (("serve", "--limit", "claude"), "--limit: expected a number, or KIND=NUMBER, got 'claude'"),
        (("serve", "--limit", "=2"), "--limit: expected a number"),
        (("serve", "--limit", "claude=two"), "--limit: expected a number"),
        (("serve", "--limit", "clod=2"), "limits names the kind 'clod'"),
        (("serve", "--limit", "claude=0"), "'claude'"),
        (("serve", "--limit", "0"), "--limit must be 1 or more"),
    ],
)
def test_what_cannot_be_served_so_is_one_line(words: tuple[str, ...], said: str, home: Path) -> None:
    ended = proctor(*words, home=home)
    assert ended.status == 2
    assert said in ended.complaint
