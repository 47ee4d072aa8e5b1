from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proctor.actors.errors import BadOption
from proctor.actors.scripted.launch import PROGRAM
from proctor.actors.web_server.listening import Endpoint, bound
from proctor.cli.app import dispatch
from proctor.cli.commands.web import Service
from proctor.cli.interrupts import Interrupts
from proctor.cli.parameters import WebOptions
from proctor.cli.tokens import token_of
from proctor.cli.ui.output import Output
from proctor.runtime.processes.procfs import children_of
from tests.proctor.command import Running, processes_with, running
from tests.proctor.metrics_page import names_promised
from tests.proctor.scripts import ANSWERS, HANGS, Fleet, agent
from tests.runtime.programs import installed

GRACE = 1.0


def address(command: Running) -> str:
    """Where it says that it serves."""
    line = command.said(b"serving", command.err).splitlines()[-1].decode()
    found = re.search(r'serving fleet on ([^\s"]+)', line)
    assert found, line
    return found[1]


def ready(client: httpx2.Client) -> dict[str, Any]:
    """Its word about itself, once the agents have started."""
    limit = time.monotonic() + 60
    said: dict[str, Any]
    while (said := client.get("/readyz").json())["why"] == "agents are starting":
        assert time.monotonic() < limit
        time.sleep(0.05)
    return said


def records(log: str) -> list[dict[str, Any]]:
    """Those of the log that are events."""
    found = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [facts for facts in found if "event" in facts]


# R179 R180 R181 R184
@pytest.mark.covers("R179", "R180", "R181", "R184")
def test_a_fleet_is_served_until_it_is_told_to_stop(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"by the file"'), a=ANSWERS)
    words, env = (
        ("web", str(path), "--listen", "127.0.0.1:0", "--no-token", "--metrics"),
        {"PROCTOR_LOG": "info"},
    )
    env["PROCTOR_LOG_FORMAT"] = "json"
    with running(*words, home=home, env=env) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            assert ready(client)["grade"] == "ok"
            answer = client.post("/agents/a/turns", json={"prompt": "you"}).json()["answer"]
            turns = client.get("/agents/a/turns").json()["turns"]
            asked = {"model": "a", "messages": [{"role": "user", "content": "client"}]}
            chat = client.post("/v1/chat/completions", json=asked).json()
            families = [*text_string_to_metric_families(client.get("/metrics").text)]
        command.signal(signal.SIGTERM)
        log = command.err.read().decode()
        assert command.end() == 0
    assert answer["text"] == "All is well, you"
    assert [turn["answer"]["text"] for turn in turns] == ["All is well, by the file", "All is well, you"]
    assert chat["choices"][0]["message"]["content"].startswith("All is well, ")
    assert {f"{f.name}_total" if f.type == "counter" else f.name for f in families} == names_promised()
    counted = {sample.name: sample for family in families for sample in family.samples if sample.value == 3}
    assert counted["proctor_turns_total"].labels == {"agent": "fleet/a", "kind": "scripted", "outcome": "ok"}
    told = [(facts["event"], facts["fleet"]) for facts in records(log) if "server_stop" in facts["event"]]
    assert told == [("http_server_stopping", "fleet"), ("http_server_stopped", "fleet")]


class Asking(Output):
    """Asks whether the server is ready as soon as it says that it serves, and as long as it says so."""

    def __init__(self) -> None:
        super().__init__(2)
        self.said: list[httpx2.Response] = []

    async def say(self, text: str) -> None:
        if text.startswith("serving fleet on "):
            async with httpx2.AsyncClient(base_url=text.split()[-1], verify=False) as client:
                self.said.append(await client.get("/readyz"))


async def test_it_is_not_ready_from_its_first_word_on_until_the_agents_have_started(
    home: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    asking, interrupts = Asking(), Interrupts()
    interrupts.scope.cancel()  # before an agent has started
    with bound(Endpoint()) as opened:
        await Service(str(path), WebOptions(listen="127.0.0.1:0", no_token=True), asking).run(
            opened, interrupts
        )
    [early] = asking.said
    assert (early.status_code, early.json()["why"]) == (503, "agents are starting")


def test_readiness_names_the_agent_whose_command_line_is_stopped_and_comes_back_with_it(
    home: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), agent("b", script='"b.ndjson"'), a=HANGS, b=ANSWERS)
    with running("web", str(path), "--listen", "127.0.0.1:0", "--no-token", home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            assert ready(client)["checks"] == {}
            client.post("/agents/a/turns", json={"prompt": "hang"}, headers={"prefer": "respond-async"})
            [program] = children_of(client.get("/agents/a").json()["pid"])
            os.kill(program, signal.SIGSTOP)
            stalled = until_it(client, ready=False)
            assert client.post("/agents/b/turns", json={"prompt": "you"}).status_code == 200
            until_it(client, ready=True)
            assert client.get("/agents/a").json()["unresponsive"] == ""
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert stalled["why"] == "not working: agents"
    assert "a is stalled: found stopped twice" in stalled["checks"]["agents"]


def until_it(client: httpx2.Client, *, ready: bool) -> dict[str, Any]:
    """Its word about itself, once it is ready, or is not any more."""
    limit = time.monotonic() + 60
    while (said := client.get("/readyz").json())["ready"] != ready:
        assert time.monotonic() < limit
        time.sleep(0.05)
    return dict(said)


@pytest.mark.covers("R182")
def test_a_command_line_that_is_taken_away_degrades_readiness_and_is_named(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = fleet(*(member(kind, tmp_path) for kind in ("claude", "codex")), a=ANSWERS)
    for name, extra in {"claude": "", "codex": "--dialect=codex"}.items():
        played = f"{sys.executable} -I -S {PROGRAM} --script={tmp_path}/a.ndjson {extra}"
        installed(tmp_path / name, f'[ "$1" = --version ] && exec echo {name} 9.9.9; exec {played} "$@"')
    with running("web", str(path), "--listen", "127.0.0.1:0", "--no-token", home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            before = ready(client)
            (tmp_path / "codex").unlink()
            limit = time.monotonic() + 30
            while (after := client.get("/readyz").json())["grade"] == "ok":
                assert time.monotonic() < limit
                time.sleep(0.2)
            alive = client.get("/healthz")
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert (before["ready"], before["checks"]) == (True, {"claude": None, "codex": None})
    assert (after["grade"], after["why"]) == ("degraded", "not working: codex")
    assert "codex" in after["checks"]["codex"]
    assert before["agents"] == after["agents"] == dict.fromkeys(before["agents"])  # what runs answers
    assert (alive.status_code, alive.json()["why"]) == (200, "not working: codex")


@pytest.mark.covers("P09")
def test_a_fleet_is_listed_stopped_restarted_and_followed_from_another_process(
    home: Path, fleet: Fleet
) -> None:
    nested = agent("b", script='"a.ndjson"').replace("[[agents]]", "[[supervisors.agents]]")
    path = fleet(agent("a", script='"a.ndjson"'), '[[supervisors]]\nname = "inner"', nested, a=ANSWERS)
    with running("web", str(path), "--listen", "127.0.0.1:0", "--no-token", home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            ready(client)
            before = {one["name"]: one for one in client.get("/agents").json()["agents"]}
            stopped = client.post("/agents/b/stop").json()
            with pytest.raises(ProcessLookupError):
                os.kill(before["b"]["pid"], 0)
            started = client.post("/agents/b/start").json()
            fresh = client.post("/agents/a/restart").json()
            client.post("/agents/b/turns", json={"prompt": "you"})
            followed = client.get("/agents/b/events", params={"since": 0, "follow": "false"}).text
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert [before[name]["state"] for name in "ab"] == ["idle", "idle"]
    assert (stopped["state"], started["state"]) == ("stopped", "idle")
    assert len({started["pid"], fresh["pid"], before["a"]["pid"], before["b"]["pid"]}) == 4
    assert "All is well, you" in followed


def test_a_turn_in_a_session_is_refused_once_the_fleet_has_spent_its_budget(home: Path, fleet: Fleet) -> None:
    pricey = ('{"reply": "That was dear.", "cost": 0.5}',)
    path = fleet("[budget]\nusd = 0.4\nperiod = 3600", agent("a", script='"a.ndjson"'), a=pricey)
    with running("web", str(path), "--listen", "127.0.0.1:0", "--no-token", home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            ready(client)
            body = {"prompt": "x", "session_id": "s"}
            said = [client.post("/agents/a/turns", json=body) for _ in range(2)]
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert [response.status_code for response in said] == [200, 429]
    assert said[1].json()["detail"] == "the tree has spent $0.5 of $0.4 in 3600 s"


def member(kind: str, folder: Path) -> str:
    return (
        f'[[agents]]\nkind = "{kind}"\nname = "{kind}r"\nexecutable = "{folder / kind}"\nrecord = "{folder}"'
    )


def test_a_unix_socket_with_the_token_of_a_file_is_served_and_goes_with_the_command(
    home: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    where = home / "web.sock"
    (home / "token").write_text("0123456789abcdef\n")
    (home / "token").chmod(0o600)
    words = ("web", str(path), "--listen", f"unix:{where}", "--token-env", "TOKEN")
    with running(*words, home=home, env={"TOKEN": f"@{home / 'token'}"}) as command:
        assert address(command) == f"unix:{where}"
        transport = httpx2.HTTPTransport(uds=str(where))
        with httpx2.Client(base_url="http://localhost", transport=transport, timeout=30) as client:
            assert client.get("/agents").status_code == 401
            client.headers["authorization"] = "Bearer 0123456789abcdef"
            assert ready(client)["ready"]
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert not where.exists()


def test_a_loopback_port_has_a_token_of_its_own_which_is_shown_at_the_start_only(
    home: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    env = {"PROCTOR_LOG": "debug"}
    with running("web", str(path), "--listen", "127.0.0.1:0", home=home, env=env) as command:
        base = address(command)
        line = command.said(b"Authorization: Bearer ", command.err).splitlines()[-1].decode()
        token = line.rpartition(" ")[2]
        link = command.said(b"the web page is ", command.err).splitlines()[-1].decode()
        with httpx2.Client(base_url=base, timeout=30, verify=False) as client:
            assert client.get("/agents").status_code == 401
            assert client.get("/healthz").status_code == 200
            client.headers["authorization"] = f"Bearer {token}"
            assert ready(client)["ready"]
        command.signal(signal.SIGTERM)
        rest = command.err.read().decode()
        assert command.end() == 0
    assert len(token) >= 32
    assert link.endswith(f"the web page is {base}/#token={token}")
    assert token not in rest


def test_without_an_address_a_fleet_is_served_at_a_socket_of_its_name_in_a_folder_of_its_user(
    home: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    run = home / "run"
    run.mkdir(mode=0o700)
    with running("web", str(path), home=home, env={"XDG_RUNTIME_DIR": str(run)}) as command:
        where = address(command)
        assert where == f"unix:{run / 'proctor' / 'fleet.sock'}"
        assert (
            (run / "proctor").stat().st_mode & 0o777,
            (run / "proctor" / "fleet.sock").stat().st_mode & 0o777,
        ) == (
            0o700,
            0o600,
        )
        transport = httpx2.HTTPTransport(uds=where.removeprefix("unix:"))
        with httpx2.Client(base_url="http://localhost", transport=transport, timeout=30) as client:
            assert ready(client)["ready"]


def second_of_work() -> float:
    """The seconds that it takes here and now; 1 where nobody else works."""
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.1:
        pass
    return max(1.0, (time.monotonic() - began) * 10)


@pytest.mark.covers("R183")
def test_sigterm_under_load_tells_every_client_why_and_leaves_nobody(home: Path, fleet: Fleet) -> None:
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

    words, env = (
        ("web", str(path), "--listen", "127.0.0.1:0", "--no-token", "--grace", f"{GRACE}s"),
        {"PROCTOR_LOG": "info"},
    )
    with running(*words, home=home, env={**env, "PROCTOR_LOG_FORMAT": "json"}) as command:
        base = address(command)
        with httpx2.Client(base_url=base, timeout=60, verify=False) as client:
            ready(client)
            threads = [threading.Thread(target=follow, args=(base, name)) for name in names]
            for thread in threads:
                thread.start()
            for _ in names:
                assert begun.acquire(timeout=60)
            second = second_of_work()
            command.signal(signal.SIGTERM)
            time.sleep(GRACE / 4)
            refused = client.post("/agents/a0/turns", json={"prompt": "more"})
        log = command.err.read().decode()
        status = command.end()
        for thread in threads:
            thread.join(60)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert set(ends) == set(names)
    assert all("the server is stopping" in end for end in ends.values())
    assert status == 0
    # By its own clock, from the begin of its drain until its last child is gone. The second beside the grace is one of a
    # machine that does nothing else: there, what lies behind the grace has been killed in less than half of it.
    [stopped] = [facts for facts in records(log) if facts["event"] == "http_server_stopped"]
    assert GRACE < stopped["seconds"] < GRACE + max(second, second_of_work())
    assert processes_with(str(path.parent)) == []


def test_what_cannot_be_served_is_one_line_before_anything_starts(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for words, said in {
            ("--listen", "0.0.0.0:0", "--no-token"): "needs a token",
            ("--token-env", "TOKEN", "--no-token"): "exclude each other",
            ("--listen", str(taken.getsockname()[1])): "Address already in use",
            ("--grace", "soon"): "--grace: expected a duration",
        }.items():
            assert dispatch(["web", str(path), *words]) == 2
            out, err = capfd.readouterr()
            assert (out, len(err.splitlines())) == ("", 1)
            assert said in err


@pytest.mark.parametrize(
    ("value", "said"),
    [("", "is not set, or empty"), ("@/nowhere/at/all", "'/nowhere/at/all' cannot be read")],
)
def test_a_token_that_is_not_there_is_named(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", value)
    with pytest.raises(BadOption, match=said):
        token_of("TOKEN")


def test_a_token_file_that_others_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o640)
    monkeypatch.setenv("TOKEN", f"@{path}")
    with pytest.raises(BadOption, match=r"can be read by others \(mode 0640\): chmod 600"):
        token_of("TOKEN")
    path.chmod(0o600)
    assert token_of("TOKEN") == "0123456789abcdef"
