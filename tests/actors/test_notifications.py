"""Notifications of a fleet: what they say, and how they come through."""

from __future__ import annotations

import hashlib
import hmac
import logging
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import FleetFaults
from proctor.actors.fleet.fleet import load_fleet
from proctor.actors.fleet.schema import NotifyTable
from proctor.actors.operations import notifications as n
from proctor.actors.operations.notifications import Notification, Notifier, Refused, Target, Watch, call, post
from proctor.actors.store.backend import StoreBackend, opened
from proctor.actors.store.memory import MemoryStore
from proctor.actors.store.sqlite import Store
from tests.actors.gateways.http.serving import spoken
from tests.actors.gateways.http.test_approvals import asks
from tests.actors.store.peers import Counting, spec_with_home
from tests.tables import each_row

AGENT = '[[agents]]\nkind = "claude"\nname = "a"\n'
PATIENCE = 30.0


def notification(text: str) -> Notification:
    return Notification(id=text, at=time.time(), fleet="f", occasion="done", text=text)


@each_row(
    ("table", "fault"),
    [
        ('webhook = "ftp://x"', "notify.webhook: 'ftp://x' is no address"),
        ('secret = "s"\ncommand = ["true"]', "notify.secret: has no effect without webhook"),
        ('on = ["done"]', "notify.webhook: is missing, and so is command"),
        ('command = ["true"]\non = ["never"]', "notify.on[0]: 'never' is not a choice"),
    ],
)
def test_a_table_that_cannot_be_is_a_fault_of_its_key(table: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(f"[notify]\n{table}\n{AGENT}")
    with pytest.raises(FleetFaults) as refused:
        load_fleet(tmp_path / "f.toml")
    assert fault in str(refused.value)


def test_the_secret_comes_from_a_variable_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    (tmp_path / "f.toml").write_text(
        f'[notify]\nwebhook = "https://example.org/x?y"\nsecret = "${{HOOK_SECRET}}"\n{AGENT}'
    )
    table = load_fleet(tmp_path / "f.toml").notify
    assert table is not None
    assert (table.secret, "s3cret" in repr(table)) == ("s3cret", False)


async def test_what_an_agent_came_to_is_said_once(autojump_clock: MockClock) -> None:
    specs = [spec_with_home(Counting()), attrs.evolve(spoken("asks", asks, permission="ask"))]
    async with proctor.open_supervisor(specs) as sup:
        watch, asking = Watch(sup.agent("agent")), Watch(sup.agent("asks"))
        assert watch.look(None) == []
        await sup.overrides.hold("agent", "wait", None)
        assert watch.look(None) == [("parked", "agent parked: by the operator: wait", {})]
        assert watch.look(None) == []
        await sup.overrides.release("agent")
        assert watch.look(None) == [("back", "agent is back: idle", {})]
        state = sup.agent("agent").kept_state()
        assert state is not None
        state.note("budget_near", "0.80 of 1.00 dollars")
        assert watch.look(None) == [("budget", "agent: 0.80 of 1.00 dollars", {})]
        assert watch.look("could not start") == [("failed", "agent failed: could not start", {})]
        assert watch.look(None) == [("back", "agent is back: idle", {})]
        await sup.agent("asks").queue("go")
        while not (found := asking.look(None)):  # noqa: ASYNC110
            await trio.sleep(0.01)
        [(occasion, text, more)] = found
        assert (occasion, text.startswith("asks asks to run ")) == ("approval", True)
        assert more["approval"]
        assert asking.look(None) == []


class Taking:
    """A target that refuses so many notifications before it takes one."""

    def __init__(self, refusals: int, *, is_final: bool = False) -> None:
        self.left = refusals
        self.is_final = is_final
        self.attempts: list[tuple[str, float]] = []

    async def __call__(self, one: Notification) -> None:
        self.attempts.append((one.text, trio.current_time()))
        self.left -= 1
        if self.left >= 0:
            raise Refused("not now", is_final=self.is_final)


async def ran(target: Target, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await target.run()


async def test_one_is_repeated_at_longer_and_longer_times_and_the_next_waits(
    autojump_clock: MockClock,
) -> None:
    taking = Taking(3)
    target = Target("the webhook", taking)
    for text in ("one", "two"):
        await target.put(notification(text))
    await ran(target, 100)
    assert taking.attempts == [("one", 0.0), ("one", 1.0), ("one", 3.0), ("one", 7.0), ("two", 7.0)]


async def test_one_that_is_refused_for_good_or_for_a_day_is_dropped_with_a_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for taking in (Taking(1, is_final=True), Taking(1000)):
        target = Target("the webhook", taking)
        await target.put(notification("one"))
        with caplog.at_level(logging.WARNING, "proctor.notify"):
            await ran(target, 2 * n.LONGEST_TRY)
        assert not target.waiting
        assert "the webhook does not take a notification: not now: one" in caplog.text
        caplog.clear()


async def test_a_full_queue_drops_the_oldest(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target("the webhook", Taking(0))
    for number in range(n.MAX_QUEUED + 1):
        await target.put(notification(str(number)))
    assert (len(target.waiting), target.waiting[0].text) == (n.MAX_QUEUED, "1")
    assert "a notification is dropped: 0" in caplog.text


class Hook:
    """A webhook on loopback, which answers with these statuses, the last one from then on."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = [*statuses]
        self.requests: list[tuple[dict[str, str], bytes]] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
        headers = {name.lower(): value for name, _, value in lines}
        while len(body) < int(headers["content-length"]):
            body += await stream.receive_some()
        self.requests.append((headers, body))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        await stream.send_all(
            f"HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".encode()
        )


@asynccontextmanager
async def listening(hook: Hook) -> AsyncGenerator[str]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, hook.serve, [listener])
            yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/hook?x=1"
            nursery.cancel_scope.cancel()


async def test_a_webhook_gets_signed_json_and_its_status_counts() -> None:
    hook = Hook(200, 500, 404, 302)
    async with listening(hook) as url:
        await post(url, "s3cret", notification("one"))
        for final in (False, True, False):
            with pytest.raises(Refused) as refused:
                await post(url, "", notification("two"))
            assert refused.value.is_final == final
    (headers, body), (unsigned, _), *_ = hook.requests
    assert msgspec.json.decode(body)["text"] == "one"
    digest = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers[n.SIGNATURE.lower()] == f"sha256={digest}"
    assert n.SIGNATURE.lower() not in unsigned
    with pytest.raises(Refused, match="refused"):
        await post("http://127.0.0.1:1/", "", notification("three"))


async def test_a_command_gets_the_notification_on_stdin_and_its_status_counts(tmp_path: Path) -> None:
    place = tmp_path / "got"
    code = f"import sys; open({str(place)!r}, 'w').write(sys.stdin.read()); sys.exit(len(sys.argv) - 1)"
    await call((sys.executable, "-c", code), notification("one"))
    assert msgspec.json.decode(place.read_text())["text"] == "one"
    with pytest.raises(Refused, match="exit status 1"):
        await call((sys.executable, "-c", code, "x"), notification("two"))
    with pytest.raises(Refused, match="No such file"):
        await call((str(tmp_path / "none"),), notification("three"))


async def test_a_fleet_notifies_of_what_its_file_names_and_of_its_end() -> None:
    hook = Hook(503, 200)
    async with listening(hook) as url:  # noqa: SIM117  # its nursery is not left before the tree's
        async with proctor.open_supervisor([spoken("a")]) as sup, trio.open_nursery() as nursery:
            notifier = Notifier("f", NotifyTable(webhook=url, secret="s", on=("parked", "done")))
            nursery.start_soon(notifier.run, sup, {"f/a": "a"}, {}, lambda: True)
            await sup.overrides.hold("a", "wait", None)
            while len(hook.requests) < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
            await sup.overrides.release("a")
            await sup.stop()
    sent: Sequence[Any] = [msgspec.json.decode(body) for _, body in hook.requests]
    assert [(one["occasion"], one["fleet"], one["agent"]) for one in sent] == [
        ("parked", "f", "a"),
        ("parked", "f", "a"),
        ("done", "f", None),
    ]
    assert sent[0]["id"] == sent[1]["id"] != sent[2]["id"]


async def kept(store: StoreBackend) -> list[str]:
    facts = await store.facts()
    return sorted(decode(text).text for by_id in facts.values() for text in by_id.values())


def decode(text: str) -> Notification:
    return msgspec.json.decode(text, type=Notification)


async def test_what_a_host_could_not_deliver_the_next_one_does_under_the_same_id(
    autojump_clock: MockClock,
) -> None:
    store, seen = MemoryStore(), list[str]()

    async def take(one: Notification) -> None:
        seen.append(one.id)

    for attempt in (Taking(1000), take):
        async with opened(store):
            target = Target("the webhook", attempt, "webhook", store)
            await target.restore((await store.facts()).get("webhook", {}))
            if not seen and isinstance(attempt, Taking):
                for text in ("one", "two"):
                    await target.put(notification(text))
                assert await kept(store) == ["one", "two"]
            await ran(target, 10)
    assert seen == ["one", "two"]
    async with opened(store):
        assert await kept(store) == []


async def test_what_is_too_old_too_much_or_unreadable_is_not_kept_on(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    ages = {"old": n.LONGEST_TRY + 1, **{f"{number:04}": number for number in range(n.MAX_QUEUED + 1)}}
    async with opened(store):
        for text, age in ages.items():
            one = msgspec.structs.replace(notification(text), at=time.time() - age)
            await store.put("webhook", text, msgspec.json.encode(one).decode())
        await store.put("webhook", "broken", "{")
        target = Target("the webhook", Taking(0), "webhook", store)
        await target.restore((await store.facts())["webhook"])
        # the oldest of those that are too many is dropped
        expected = [f"{number:04}" for number in range(n.MAX_QUEUED)]
        assert [one.text for one in target.waiting] == expected[::-1]
        assert await kept(store) == expected


async def test_a_store_that_cannot_be_used_costs_only_what_outlives_the_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, hook = Store(tmp_path / "n.db"), Hook(200)
    async with opened(Store(tmp_path / "n.db")), listening(hook) as url:  # noqa: SIM117  # as above
        async with proctor.open_supervisor([spoken("a")]) as sup, trio.open_nursery() as nursery:
            notifier = Notifier("f", NotifyTable(webhook=url), store)
            nursery.start_soon(notifier.run, sup, {"f/a": "a"}, {}, lambda: True)
            await trio.testing.wait_all_tasks_blocked()
            await sup.stop()
    assert msgspec.json.decode(hook.requests[0][1])["occasion"] == "done"
    assert "notifications do not outlive this host: " in caplog.text
