"""The public face name by name, as Trio, asyncio and plain code use it: the same exercises in the three."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import proctor
from proctor import aio, sync
from proctor.bridge.adapters import as_is
from proctor.bridge.sync_face import Block
from tests.actors.test_client import hosted
from tests.faces.page import ways
from tests.faces.three import Exercise, Face

EXERCISES: dict[str, tuple[Exercise, set[str]]] = {}
SAME = {"DynamicSupervisor": "Supervisor", "Name": "Ref"}


def exercise(names: str) -> Callable[[Exercise], Exercise]:
    """An exercise of these names; `Class: a b` stands for `Class.a` and `Class.b`."""
    found = set[str]()
    for line in filter(None, map(str.strip, names.splitlines())):
        klass, colon, members = line.partition(":")
        found |= {f"{klass}.{member}" for member in members.split()} if colon else {*line.split()}

    def kept(function: Exercise) -> Exercise:
        EXERCISES[function.__name__] = function, found
        return function

    return kept


def script(folder: Path, *steps: dict[str, Any], name: str = "script") -> Path:
    path = folder / f"{name}.ndjson"
    path.write_text("\n".join(map(json.dumps, steps)))
    return path


def spec(folder: Path, name: str = "a", *steps: dict[str, Any], **options: Any) -> proctor.ChildSpec:
    steps = steps or ({"reply": "said {prompt}"},)
    return proctor.scripted(name, script(folder, *steps, name=name), shutdown=3.0, **options)


@exercise(
    """
    ask stream attempted
    Run: items batch answer delivery directory failure finish leave kill
    """
)
async def runs(face: Face, folder: Path) -> None:
    module, agent = face.module, spec(folder)
    assert (await face.do(module, "ask", agent, "one")).text == "said one"
    async with face.block(module, "stream", agent, "two") as run:
        events = [*(await face.do(run, "batch")), *(await face.listed(run))]
        assert isinstance(events[-1], proctor.Exited)
        assert face.get(run, "answer").text == "said two"
        assert face.get(run, "failure") is None
        assert (await face.do(run, "delivery")).sent == "yes"
        assert face.get(run, "directory").name
    async with face.block(module, "stream", agent, "three") as run:
        assert (await face.do(run, "finish")).text == "said three"
    async with face.block(module, "stream", agent, "four") as run:
        await face.do(run, "leave")
    async with face.block(module, "stream", agent, "five") as run:
        await face.do(run, "kill")

    def attempt(**options: Any) -> Any:
        return module.ask(agent, "six", **options)

    assert (await face.do(module, "attempted", attempt)).text == "said six"


TURN = "items batch agent answer delivery finish leave over"


@exercise(
    """
    open_supervisor
    Supervisor: agent
    Agent: name ask stream queue status memory events raw until_found
    Turn: items agent answer over
    Receipt: request fate why turn answer
    """
)
async def asking(face: Face, folder: Path) -> None:
    async with face.block(face.module, "open_supervisor", [spec(folder)]) as sup:
        agent = await face.do(sup, "agent", "a")
        await face.do(agent, "until_found")
        assert face.get(agent, "name") == "a"
        assert (await face.do(agent, "ask", "one")).text == "said one"
        async with face.block(agent, "stream", "two") as turn:
            events = await face.listed(turn)
            assert face.get(turn, "answer").text == "said two"
            assert (face.get(turn, "over"), face.get(turn, "agent")) == (True, "a")
        text = next(event for event in events if isinstance(event, proctor.Text))
        assert b"said two" in await face.do(agent, "raw", text)
        receipt = await face.do(agent, "queue", "three")
        assert (bool(receipt), face.get(receipt, "fate"), face.get(receipt, "why")) == (True, "queued", "")
        assert face.get(receipt, "request")
        assert face.get(receipt, "turn") is None
        assert (await face.do(receipt, "answer")).text == "said three"
        assert (await face.do(agent, "status")).turns == 3
        assert await face.do(agent, "memory") is not None
        async with face.block(agent, "events", 0) as events:
            async for event in face.each(events):
                if isinstance(event, proctor.TurnEnded):
                    break


@exercise(
    """
    Turn: batch delivery finish leave
    Agent: interrupt steer set_model set_permission_mode stop_task
    """
)
async def turns(face: Face, folder: Path) -> None:
    steps = (
        {"turn": "works", "when": "work"},
        {"say": "working"},
        {"sleep": 60},
        {"turn": "other"},
        {"reply": "ok"},
    )
    async with face.entered(face.module.open_supervisor([spec(folder, "a", *steps)])) as sup:
        agent = sup.agent("a")
        async with face.block(agent, "stream", "work") as turn:
            if face.module is not proctor:
                assert await face.do(turn, "batch")
            else:
                face.note(turn, "batch")  # of the faces alone
                await anext(turn)
            assert (await face.do(turn, "delivery")).sent in ("yes", "unknown")
            assert (await face.do(agent, "steer", "faster", timeout=0.01)).fate in (
                "queued",
                "expired",
                "delivered",
            )
            assert await face.do(agent, "interrupt")
            assert (await face.do(turn, "finish")).outcome == "interrupted"
        async with face.block(agent, "stream", "work") as turn:
            await face.do(turn, "leave")
        assert (await face.do(agent, "set_model", "small")).fate
        assert (await face.do(agent, "set_permission_mode", "plan")).fate
        assert (await face.do(agent, "stop_task", "none", timeout=0.01)).fate


@exercise(
    """
    Agent: approvals
    Approvals: items open batch
    Approval: agent allow answer asked choices deny description diff extend id input questions settled tool tool_call wait
    """
)
async def approvals(face: Face, folder: Path) -> None:
    call = {"tool": "Bash", "input": {"command": "ls"}, "ask": True, "result": "none"}
    agent_spec = spec(folder, "a", call, call, call, {"reply": "done"}, permission="ask")
    async with face.entered(face.module.open_supervisor([agent_spec])) as sup:
        agent = sup.agent("a")
        receipt = await face.do(agent, "queue", "go")
        async with face.block(agent, "approvals") as open_ones:
            async for one in face.each(open_ones):
                shown = [face.get(one, name) for name in ("agent", "tool", "input", "choices", "questions")]
                assert shown == ["a", "Bash", {"command": "ls"}, ("allow", "deny", "always"), ()]
                assert [face.get(one, name) for name in ("diff", "settled")] == [None, None]
                assert all(face.get(one, name) for name in ("id", "asked", "tool_call"))
                face.get(one, "description")
                assert [waiting.id for waiting in await face.do(open_ones, "open")] == [one.id]
                assert await face.do(one, "extend", 30.0)
                with pytest.raises(proctor.BadOption):
                    await face.do(one, "answer")
                assert await face.do(one, "allow")
                assert await face.do(one, "wait") == "allowed"
                break
            async for one in face.each(open_ones):
                assert await face.do(one, "deny", "no")
                break
            if face.module is proctor:
                last = await anext(open_ones)
                face.note(open_ones, "batch")  # of the faces alone
            else:
                [last] = await face.do(open_ones, "batch")
            await face.do(last, "allow")
        assert (await face.do(receipt, "answer")).text == "done"


class Echo(proctor.Actor):
    """Answers what it is asked, and streams it."""

    async def handle_call(self, msg: object, from_: Any) -> object:
        return msg

    async def handle_cast(self, msg: object) -> None:
        pass

    async def handle_stream(self, msg: Any, sink: Any) -> None:
        await sink.send_all(msg)


ADDRESS = "call cast cast_nowait is_alive send_request stream until_found exit kill monitor"


@exercise(
    f"""
    Ref: {ADDRESS} exit_reason info path
    Monitor: down wait
    Request: wait receive result abandon
    Supervisor: start_child restart_child wait_ready
    """
)
async def actors(face: Face, folder: Path) -> None:
    async with face.entered(face.module.open_supervisor([], intensity=9)) as sup:
        await face.do(sup, "wait_ready")
        ref = await face.do(
            sup, "start_child", proctor.ChildSpec("echo", Echo, name="echo", restart="temporary")
        )
        assert await face.do(ref, "call", 1) == 1
        await face.do(ref, "cast", 2)
        await face.do(ref, "cast_nowait", 3)
        async with face.block(ref, "stream", [4, 5]) as items:
            assert [item async for item in face.each(items)] == [4, 5]
        request = await face.do(ref, "send_request", 6)
        assert [await face.do(request, "wait"), await face.do(request, "result")] == [6, 6]
        assert await face.do(request, "receive") == 6
        await face.do(request, "abandon")
        assert (await face.do(ref, "is_alive"), face.get(ref, "path")) == (True, "root/echo")
        assert (face.get(ref, "info"), face.get(ref, "exit_reason")) == (None, None)
        with pytest.raises(proctor.NoProc):
            await face.do(ref, "until_found")
        async with face.block(ref, "monitor") as monitor:
            assert face.get(monitor, "down") is None
            await face.do(ref, "exit", proctor.Shutdown())
            assert isinstance((await face.do(monitor, "wait")).reason, proctor.Shutdown)
        await face.do(sup, "start_child", proctor.ChildSpec("other", Echo, restart="temporary"))
        await face.do(ref, "kill")
        await sup_restart(face, sup)


async def sup_restart(face: Face, sup: Any) -> None:
    await face.do(sup, "start_child", proctor.ChildSpec("again", Echo, restart="transient"))
    await face.do(sup, "terminate_child", "again")
    again = await face.do(sup, "restart_child", "again")
    assert await face.do(again, "call", 7) == 7


@exercise(f"Name: {ADDRESS} wait")
async def names(face: Face, folder: Path) -> None:
    spec = proctor.ChildSpec("echo", Echo, name="echo", restart="permanent")
    async with face.entered(face.module.open_supervisor([spec], intensity=99)) as sup:
        name = await face.do(sup, "name", "echo")
        await face.do(name, "until_found")
        assert await face.do(name, "call", 1) == 1
        await face.do(name, "cast", 2)
        await face.do(name, "cast_nowait", 3)
        async with face.block(name, "stream", [4]) as items:
            assert [item async for item in face.each(items)] == [4]
        request = await face.do(name, "send_request", 5)
        assert await face.do(request, "receive") == 5
        assert await face.do(name, "is_alive")
        first = await face.do(name, "wait")
        async with face.block(name, "monitor") as monitor:
            await face.do(name, "exit", proctor.Shutdown())
            await face.do(monitor, "wait")
        await face.do(name, "until_found")
        async with face.block(name, "monitor") as monitor:
            await face.do(name, "kill")
            await face.do(monitor, "wait")
        assert face.get(first, "exit_reason") == proctor.Shutdown()


@exercise(
    """
    Supervisor: name child agent supervisor dynamic_supervisor events late path ref tree change count_children delete_child
    Supervisor: forget_restarts get_childspec start_child restart_child stop terminate_child wait_ready wait_stopped which_children
    """
)
async def supervising(face: Face, folder: Path) -> None:
    nested = [
        proctor.supervisor_spec("inner", [proctor.ChildSpec("echo", Echo)]),
        proctor.dynamic_supervisor_spec("dyn"),
    ]
    async with face.entered(face.module.open_supervisor(nested, intensity=9)) as sup:
        async with face.block(sup, "events") as events:
            await face.do(sup, "start_child", proctor.ChildSpec("x", Echo, restart="transient"))
            async for event in face.each(events):
                assert event.path.startswith("root")
                break
        assert await face.do(await face.do(sup, "child", "inner/echo"), "call", 1) == 1
        assert (await face.do(sup, "agent", "a")).name == "a"
        await face.do(sup, "name", "x")
        assert face.get(sup, "path") == "root"
        assert face.get(face.get(sup, "ref"), "path") == "root"
        inner = await face.do(sup, "supervisor", "inner")
        assert (await face.do(inner, "count_children")).active == 1
        dynamic = await sup_dynamic(face, sup)
        assert (await face.do(dynamic, "count_children")).active == 0
        assert len((await face.do(sup, "tree")).children) == 3
        await face.do(sup, "change", intensity=3)
        assert (await face.do(sup, "get_childspec", "x")).id == "x"
        await face.do(sup, "forget_restarts", "x")
        assert await face.do(sup, "terminate_child", "x") == ()
        await face.do(sup, "restart_child", "x")
        await face.do(sup, "terminate_child", "x")
        await face.do(sup, "delete_child", "x")
        assert len(await face.do(sup, "which_children")) == 2
        await face.do(sup, "wait_ready")
        assert await face.do(sup, "stop") == ()
        assert await face.do(sup, "wait_stopped") == proctor.Shutdown()
        assert face.get(sup, "late") == ()


async def sup_dynamic(face: Face, sup: Any) -> Any:
    if face.module is not proctor:
        return await face.do(sup, "dynamic_supervisor", "dyn")
    face.note(sup, "dynamic_supervisor")  # in Trio `supervisor` with a kind
    from proctor.runtime.supervision import DynamicSupervisor

    return sup.supervisor("dyn", DynamicSupervisor)


@exercise(
    """
    open_dynamic_supervisor
    DynamicSupervisor: name child agent supervisor dynamic_supervisor events late path ref tree change count_children
    DynamicSupervisor: start_child stop terminate_child wait_ready wait_stopped which_children
    """
)
async def dynamic(face: Face, folder: Path) -> None:
    async with face.block(face.module, "open_dynamic_supervisor") as sup:
        async with face.block(sup, "events") as events:
            ref = await face.do(
                sup, "start_child", proctor.ChildSpec("x", Echo, name="x", restart="temporary")
            )
            async for event in face.each(events):
                assert event.path.startswith("root")
                break
        assert await face.do(await face.do(sup, "name", "x"), "call", 1) == 1
        nested = await face.do(sup, "start_child", proctor.supervisor_spec("inner"))
        path = nested.path.partition("/")[2]
        assert (await face.do(await face.do(sup, "supervisor", path), "count_children")).active == 0
        nested = await face.do(sup, "start_child", proctor.dynamic_supervisor_spec("dyn"))
        face_path = nested.path.partition("/")[2]
        if face.module is proctor:
            face.note(sup, "dynamic_supervisor")
        else:
            await face.do(sup, "dynamic_supervisor", face_path)
        await face.do(sup, "child", face_path)
        await face.do(sup, "agent", "a")
        assert face.get(sup, "path") == "root"
        assert face.get(face.get(sup, "ref"), "path") == "root"
        assert len((await face.do(sup, "tree")).children) == 3
        await face.do(sup, "change", max_children=5)
        await face.do(sup, "terminate_child", ref)
        assert len(await face.do(sup, "which_children")) == 2
        assert (await face.do(sup, "count_children")).active == 2
        await face.do(sup, "wait_ready")
        assert await face.do(sup, "stop") == ()
        assert await face.do(sup, "wait_stopped") == proctor.Shutdown()
        assert face.get(sup, "late") == ()


@exercise(
    """
    Batch: block items batch progress stop kill
    """
)
async def batches(face: Face, folder: Path) -> None:
    tasks = [proctor.BatchTask(id=f"t{n}", prompt=f"p{n}") for n in range(3)]
    async with face.block(face.module, "batch", tasks, spec(folder), limit=1) as results:
        face.note(results, "block")  # that of the function
        first = [await anext(results)] if face.module is proctor else await face.do(results, "batch")
        face.note(results, "batch")  # of the faces alone
        found = [*first, *(await face.listed(results))]
        assert [(one.task, one.text) for one in found] == [(f"t{n}", f"said p{n}") for n in range(3)]
        assert (await face.do(results, "progress")).done == 3
        await face.do(results, "stop")
        await face.do(results, "kill")


@exercise(
    """
    Pool: name run stream slot statistics memory serve
    Pools: run stream statistics of serve
    """
)
async def pools(face: Face, folder: Path) -> None:
    agent, pool, several = spec(folder), face.module.Pool("p", limit=2), face.module.Pools(limit=2)
    async with serving(face, pool), serving(face, several):
        assert face.get(pool, "name") == "p"
        assert (await face.do(pool, "run", agent, "one")).text == "said one"
        async with face.block(pool, "stream", agent, "two") as run:
            assert (await face.do(pool, "statistics")).used == 1
            await face.do(pool, "memory")
            assert (await face.do(run, "finish")).text == "said two"
        async with face.block(pool, "slot", timeout=5) as left:
            assert 0 < left <= 5
        assert (await face.do(several, "run", agent, "three")).text == "said three"
        async with face.block(several, "stream", agent, "four") as run:
            assert (await face.do(run, "finish")).text == "said four"
        [statistics] = await face.do(several, "statistics")
        one = await face.do(several, "of", agent)
        assert statistics == await face.do(one, "statistics")
        # a session that runs in the pool, and one that is run by a function of the caller
        sessions = face.module.Sessions(folder / "sessions")
        async with face.entered(sessions), face.entered(sessions.hold("a")) as session:
            assert (await face.do(session, "run", agent, "five", by=pool.run)).text == "said five"
    with pytest.raises(proctor.PoolClosed):
        await face.do(pool, "run", agent, "six")


def serving(face: Face, pool: Any) -> Any:
    face.note(pool, "serve")
    if face.module is not proctor:
        return face.entered(pool.serve())
    from proctor.bridge.adapters import served

    return served(pool.serve)


@exercise(
    """
    CompletionModel: make name completion stream statistics
    CompletionStream: items batch failed finish response
    """
)
async def completions(face: Face, folder: Path) -> None:
    request = proctor.CompletionRequest(prompt="one")
    model = await face.do(face.module.CompletionModel, "make", spec(folder), pool=face.module.Pool("p"))
    face.note(model, "make")
    assert face.get(model, "name") == "a"
    assert (await face.do(model, "completion", request)).text.endswith("one")
    async with face.block(model, "stream", request) as stream:
        assert len(await face.listed(stream)) >= 2
        assert face.get(stream, "response").text.endswith("one")
        assert not face.get(stream, "failed")
    async with face.block(model, "stream", request) as stream:
        if face.module is proctor:
            face.note(stream, "batch")  # of the faces alone
        else:
            assert await face.do(stream, "batch")
        assert (await face.do(stream, "finish")).text.endswith("one")
    assert (await face.do(model, "statistics")).completed == 3


@exercise(
    """
    converse stream_conversation
    Provider: name completion context needs runs_tools stream within
    Providers: create names register
    """
)
async def providers(face: Face, folder: Path) -> None:
    called: list[int] = []

    def look_up(page: int) -> str:
        "Look a page up."
        called.append(page)
        return f"page {page}"

    tool = face.module.tool(face.function(look_up))
    registry = face.module.Providers()
    await face.do(
        registry, "register", "own", lambda context: model_of(face), runs_tools=False, needs=["user"]
    )
    assert face.get(registry, "names") == ("own",)
    bare = await face.do(registry, "create", "own")
    provider = await face.do(bare, "within", {"user": "ada"})
    assert face.get(provider, "name") == "own"
    assert (face.get(provider, "context"), face.get(provider, "needs")) == ({"user": "ada"}, {"user"})
    assert not face.get(provider, "runs_tools")
    request = proctor.CompletionRequest(prompt="hello")
    assert (await face.do(provider, "completion", request)).tool_calls
    async with face.block(provider, "stream", request) as stream:
        assert (await face.do(stream, "finish")).tool_calls
    assert (await face.do(face.module, "converse", provider, request, [tool])).text == "it says page 7"
    async with face.block(face.module, "stream_conversation", provider, request, [tool]) as stream:
        assert (await face.do(stream, "finish")).text == "it says page 7"
    assert called == [7, 7]
    made = face.module.Provider(name="agent", make=lambda context: spec(folder))
    assert (await face.do(made, "completion", request)).text.endswith("hello")


def model_of(face: Face) -> Any:
    """A model of the caller that calls a tool, and then says what that said."""
    from proctor.actors.serving.chunks import ToolUse

    def completion(request: proctor.CompletionRequest) -> proctor.Completion:
        if request.history:
            return proctor.Completion(text=f"it says {request.history[-1].content}")
        return proctor.Completion(tool_calls=(ToolUse("1", "look_up", {"page": 7}),))

    class Model:
        pass

    model = Model()
    model.completion = face.function(completion)  # type: ignore[attr-defined]
    return model


@exercise(
    """
    Sessions: block facts hold remove root
    Session: conversation forget remember run id path
    """
)
async def sessions(face: Face, folder: Path) -> None:
    agent, made = spec(folder), face.module.Sessions(folder / "sessions")
    face.note(made, "block")
    async with face.entered(made) as opened:
        assert face.get(opened, "root") == folder / "sessions"
        async with face.block(opened, "hold", "ada", timeout=30) as session:
            answer = await face.do(session, "run", agent, "one")
            assert answer.text == "said one"
            assert face.get(session, "id") == "ada"
            assert face.get(session, "path").is_dir()
            assert await face.do(session, "conversation", agent) is not None
            await face.do(session, "forget", agent)
            assert await face.do(session, "conversation", agent) is None
            await face.do(session, "remember", agent, answer)
        assert [facts.id for facts in await face.do(opened, "facts")] == ["ada"]
        assert (len(opened), "ada" in opened) == (1, True)
        assert await face.do(opened, "remove", "ada")


STORE = "accept close end facts open prune put requests send"


@exercise(f"MemoryStore: {STORE}\nStore: {STORE} path")
async def stores(face: Face, folder: Path) -> None:
    for store in (face.module.MemoryStore(), face.module.Store(folder / "store")):
        agent = spec(folder)
        async with face.entered(face.module.open_supervisor([agent], store=store)) as sup:
            assert (await sup_ask(face, sup)).text == "said one"
            assert (await sup_ask(face, sup)).text == "said one"
            [kept] = await face.do(store, "requests", key="order")
            assert await face.do(store, "accept", kept) == kept
            await face.do(store, "send", kept.id, kept.mark if hasattr(kept, "mark") else kept.sent)
            await face.do(store, "end", kept.id, kept.end)
            await face.do(store, "put", "a", "colour", "red")
            assert (await face.do(store, "facts"))["a"]["colour"] == "red"
            assert await face.do(store, "prune", 0.0) == 0
        await face.do(store, "open")
        await face.do(store, "close")
        if hasattr(store, "path"):
            assert face.get(store, "path") == folder / "store"


async def sup_ask(face: Face, sup: Any) -> Any:
    return await face.do(sup.agent("a"), "ask", "one", key="order")


@exercise(
    """
    connect
    RemoteFleet: agent agents approvals changes host reload status stop
    RemoteAgent: name approvals ask events interrupt kill park queue reset restart start status steer stop unpark
    RemoteApproval: agent allow answer asked choices deny description diff extend id input questions seconds_left tool
    """
)
async def remote(face: Face, folder: Path) -> None:
    async with face.block(face.module, "connect", "review") as fleet:
        agent = await face.do(fleet, "agent", "a")
        assert face.get(agent, "name") == "a"
        assert face.get(fleet, "host").fleet == "review"
        assert (await face.do(agent, "ask", "hello", key="k")).text == "1: hello"
        assert await face.do(agent, "queue", "more")
        assert (await face.do(agent, "steer", "left")).fate
        assert (await face.do(agent, "interrupt")).fate
        async with face.block(agent, "events", 0) as events:
            async for event in face.each(events):
                assert event.frame is not None or event
                break
        commands = ("stop", "start", "restart", "park", "unpark", "reset")
        for command in commands:
            assert (await face.do(agent, command)).name == "a"
        assert (await face.do(agent, "status")).state
        async with face.block(fleet, "changes") as changes:
            await face.do(agent, "kill")
            async for change in face.each(changes):
                assert change.kind
                break
        assert set(await face.do(fleet, "agents")) == {"a", "asks", "wonders"}
        assert await face.do(fleet, "status")
        await remote_approvals(face, fleet)
        for command in ("reload", "stop"):
            with pytest.raises((proctor.RemoteError, proctor.HostError, proctor.BadOption, RuntimeError)):
                await face.do(fleet, command)


async def remote_approvals(face: Face, fleet: Any) -> None:
    asks = fleet.agent("asks")
    assert await face.do(asks, "queue", "please")
    async with face.block(asks, "approvals") as coming:
        async for one in face.each(coming):
            for name in (
                "asked",
                "choices",
                "description",
                "diff",
                "id",
                "input",
                "questions",
                "seconds_left",
                "tool",
            ):
                face.get(one, name)
            assert face.get(one, "agent") == "asks"
            break
    [one] = await face.do(fleet, "approvals")
    one = await face.do(one, "extend", 60.0)
    with pytest.raises((proctor.BadOption, proctor.RemoteError)):
        await face.do(one, "answer", "none")
    assert await face.do(one, "deny", "no")
    with pytest.raises((proctor.BadOption, proctor.RemoteError)):
        await face.do(one, "allow")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "proctor").mkdir()
    return tmp_path


@pytest.fixture
def host(request: pytest.FixtureRequest, home: Path) -> Generator[None]:
    """The host of a fleet, for the exercise that needs one."""
    if request.node.callspec.params["name"] != "remote":
        yield
        return
    with sync.TrioThread() as thread, Block[Any](thread, as_is, hosted, home / "proctor"):
        yield


@pytest.mark.parametrize("module", [proctor, aio, sync], ids=lambda module: module.__name__)
@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.usefixtures("host")
def test_the_three_faces_do_the_same(name: str, module: ModuleType, home: Path) -> None:
    function, names = EXERCISES[name]
    face = Face(module)
    face.run(lambda: function(face, home))
    assert names - face.touched == set()


def test_every_name_of_the_table_is_exercised() -> None:
    exercised = set[str]().union(*(names for _, names in EXERCISES.values()))
    assert set(ways()) - exercised == set()
    assert exercised - set(ways()) == set()
