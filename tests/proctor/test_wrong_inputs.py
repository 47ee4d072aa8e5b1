"""What a user can get wrong: each wrong input has its exact line, which says what, where and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import proctor
from proctor.actors.plan.options import OPTIONS, AgentOptions
from proctor.cli.app import dispatch
from proctor.cli.verbs import VERBS
from proctor.runtime.errors import InvalidSpec
from tests.proctor import command
from tests.tables import each_row

COMMANDS = (
    "run, up, web, config, doctor, record, replay, runs, show, cost, bench, resume, service, setup, health, serve, "
    + ", ".join(VERBS)
)
KINDS = "claude, codex, opencode, gemini, acp:COMMAND, scripted:FILE"
DURATION = "a duration such as 90, '30s' or '1h30m'"
ID = "3c9b9a52-44a1-4d64-9a84-ff86a2cbb2a7"


@pytest.fixture(autouse=True)
def installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home, and programs that are there and are never started."""
    program = home / "program"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    for name in ("CLAUDE", "CODEX", "OPENCODE", "GEMINI"):
        monkeypatch.setenv(f"PROCTOR_{name}", str(program))
    monkeypatch.chdir(home)


RUN = ("run", "claude", "hi")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("xyz",), f"unknown command 'xyz'; known: {COMMANDS} (see proctor --help)"),
        (("rnu",), f"unknown command 'rnu' (did you mean 'run'?); known: {COMMANDS} (see proctor --help)"),
        (("help", "rnu"), f"unknown command 'rnu' (did you mean 'run'?); known: {COMMANDS} (see proctor --help)"),
        (("-x",), "unknown option '-x'; known: --help, --version (see proctor --help)"),
        (("--versoin",), "unknown option '--versoin' (did you mean '--version'?); known: --help, --version (see proctor --help)"),
        (("run",), "AGENT needs a value (see proctor help run)"),
        (("run", "clade", "hi"), f"unknown agent 'clade' (did you mean 'claude'?); known: {KINDS}"),
        (("run", "llama", "hi"), f"unknown agent 'llama'; known: {KINDS}"),
        (("run", "claude:x", "hi"), f"agent 'claude:x': 'claude' takes no argument; known: {KINDS}"),
        (("run", "scripted", "hi"), "agent 'scripted' needs a FILE: write scripted:FILE"),
        (("run", "scripted:/nowhere", "hi"), "/nowhere: cannot be read: No such file or directory"),
        (("run", "acp:'x", "hi"), "agent 'acp:'x': no closing quotation"),
        (("run", "claude", ""), "the prompt is empty"),
        (("run", "claude", "hi", "there"), "too many words: 'there'; put a prompt of several words in quotes (see proctor help run)"),
        (("run", "claude", "-x"), "unknown option '-x'; put a prompt that starts with - after -- (see proctor help run)"),
        ((*RUN, "--modle=x"), "unknown option '--modle' (did you mean '--mode' or '--model'?) (see proctor help run)"),
        ((*RUN, "--model"), "--model needs a value (see proctor help run)"),
        ((*RUN, "--model="), "--model must be a name that does not begin with '-', got ''"),
        ((*RUN, "--json=3"), 'invalid value for --json: unable to convert "3" into bool (see proctor help run)'),
        ((*RUN, "--timeout=-5"), f"--timeout must be {DURATION}, or 0 or 'none' for no limit, got '-5'"),
        ((*RUN, "--mode=exec"), "--mode 'exec' is not a choice for Claude Code; accepted: session, oneshot"),
        ((*RUN, "--mode=zzz"), 'invalid value "zzz" for --mode. Choose from: "session", "oneshot", "exec", "run" (see proctor help run)'),
        ((*RUN, "--home=x"), 'invalid value "x" for --home. Choose from: "user", "private" (see proctor help run)'),
        ((*RUN, "--resume=zzz"), "--resume must be a session's UUID, got 'zzz'"),
        (("run", "codex", "hi", "--resume=zzz"), "--resume must be a thread's UUID, got 'zzz'"),
        (("run", "opencode", "hi", "--resume=zzz"), "--resume must be a session's id, which begins with 'ses', got 'zzz'"),
        ((*RUN, "--cwd=/nope"), "--cwd must be the path of a directory, got '/nope'"),
        ((*RUN, "--env==x"), "--env '=x': expected NAME or NAME=VALUE"),
        ((*RUN, "--env=NOT_SET_HERE"), "--env 'NOT_SET_HERE': not set here; write NOT_SET_HERE=VALUE to give it one"),
        ((*RUN, "--record="), "--record must be a path, not empty, got ''"),
        ((*RUN, "--record=x", "--no-record"), "--record and --no-record exclude each other (see proctor run --help)"),
        ((*RUN, "--executable="), "--executable must be a path, not empty, got ''"),
        (("up", "a", "b"), "too many words: 'b' (see proctor help up)"),
        (("up", "/nope"), "/nope: cannot be read: No such file or directory"),
        (("setup", "--client=zzz"), 'invalid value "zzz" for --client. Choose from:'),
        (("setup", "--name=a b"), "invalid name 'a b': use up to 64 letters, digits, - and _, which every client accepts"),
        (("setup", "--fleet=/nope"), "/nope: cannot be read: No such file or directory"),
        (("health", "zzz"), 'invalid value "zzz" for ADAPTER. Choose from:'),
        (("doctor", "--children=0"), "--children is 1 or more, --seconds 0 or more (see proctor doctor --help)"),
        (("doctor", "--output=x"), 'invalid value "x" for --output. Choose from: "table", "json" (see proctor help doctor)'),
        (("replay",), "RECORDING needs a value (see proctor help replay)"),
        (("replay", "/nope", "--speed=-1"), "--speed is 0 or more (see proctor replay --help)"),
        (("replay", "/nope"), "'/nope' is not a recording: no such directory"),
        (("record",), "no command: proctor record -- claude -p hello (see proctor record --help)"),
    ],
)  # fmt: skip
def test_wrong_words_are_answered_with_one_line_and_status_2(
    words: tuple[str, ...], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(words) == 2
    [said] = capfd.readouterr().err.splitlines()
    assert said == f"proctor: {line}" or (line.endswith(":") and said.startswith(f"proctor: {line}"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("web", "/nope"), "/nope: cannot be read: No such file or directory"),
        (("serve", "--agents=zzz"), f"unknown agent 'zzz'; known: {KINDS}"),
        (("serve", "--root=/nope"), "root '/nope' cannot be used: No such file or directory"),
        (("serve", "--limit=0"), "--limit must be 1 or more, got 0"),
        (("serve", "--limit=x"), "--limit: expected a number, or KIND=NUMBER, got 'x'"),
        (("serve", "--timeout=x"), f"--timeout: expected {DURATION}, or 0 or 'none' for no limit, got 'x'"),
        (("serve", "--http=zzz"), "cannot listen on 'zzz': expected PORT, HOST:PORT (an address or localhost), or unix:PATH"),
    ],
)  # fmt: skip
def test_wrong_words_of_a_server_are_answered_with_one_line_and_status_2(
    home: Path, words: tuple[str, ...], line: str
) -> None:
    done = command.proctor(*words, home=home)
    assert (done.status, done.out) == (2, "")
    [said] = [each for each in done.err.splitlines() if each.startswith("proctor: ")]
    assert said.startswith(f"proctor: {line}")


def test_all_that_is_wrong_with_web_and_its_fleet_is_told_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "team.toml"
    path.write_text(f'{CLAUDE}max_turns = 0\nresume = "zzz"\n')
    words = (
        "--grace=x",
        "--session-ttl=y",
        "--limit=z",
        "--limit=0",
        "--limit=zzz=1",
        "--listen=::",
        "--token-env=NOT_SET_HERE",
    )
    assert dispatch(["web", str(path), *words]) == 2
    lines = [line.removeprefix("proctor: ") for line in capfd.readouterr().err.splitlines()]
    begin = (
        "--grace: ",
        "--session-ttl: ",
        "--limit: ",
        "--limit must",
        "limits",
        "cannot listen on",
        "--token-env",
        f"{path}:4",
        f"{path}:5",
    )
    assert sorted(start for start in begin for line in lines if line.startswith(start)) == sorted(begin)
    assert len(lines) == len(begin)


def test_all_that_is_wrong_with_serve_and_its_files_is_told_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, schema = tmp_path / "team.toml", tmp_path / "schema.json"
    path.write_text(f'{CLAUDE}max_turns = 0\nresume = "zzz"\n')
    schema.write_text("[]")
    words = (
        *(
            "--timeout=x",
            "--client-ttl=y",
            "--limit=0",
            "--limit=z",
            "--root=/nope",
            "--env==x",
            "--agents=aaa,bbb",
        ),
        *(f"--fleet={path}", f"--schema={schema}", f"--submit-to={tmp_path}", "--probes=::", "--http=zzz"),
    )
    assert dispatch(["serve", *words]) == 2
    lines = [line.removeprefix("proctor: ") for line in capfd.readouterr().err.splitlines()]
    begin = (
        *(
            "--timeout: ",
            "--client-ttl: ",
            "--limit: ",
            "--limit must",
            "root '/nope'",
            "unknown agent 'aaa'",
        ),
        *(
            "unknown agent 'bbb'",
            f"{path}:4",
            f"{path}:5",
            "--schema ",
            "--submit-to ",
            "cannot listen on 'zzz'",
        ),
        *("--probes ", "env"),
    )
    assert sorted(start for start in begin for line in lines if line.startswith(start)) == sorted(begin)
    assert len(lines) == len(begin)


CLAUDE = '[[agents]]\nkind = "claude"\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{CLAUDE}max_turns = 0", "4: agent 'a': agents[0].max_turns: must be an integer from 1 on, got 0"),
        (f"{CLAUDE}max_budget_usd = -3", "4: agent 'a': agents[0].max_budget_usd: must be a number of US dollars above 0, got -3.0"),
        (f'{CLAUDE}resume = "zzz"', "4: agent 'a': agents[0].resume: must be a session's UUID, got 'zzz'"),
        (f'{CLAUDE}sandbox = "x"', "4: agent 'a': agents[0].sandbox: 'x' is not a choice; accepted: read-only, workspace-write, danger-full-access"),
        (f'{CLAUDE}effort = "hgih"', "4: agent 'a': agents[0].effort: 'hgih' is not a choice (did you mean 'high' or 'xhigh'?); accepted: low, medium, high, xhigh, max"),
        (f'{CLAUDE}prompt = ""', "4: agent 'a': agents[0].prompt: must be a text that is not blank, got ''"),
        (f'{CLAUDE}model = ""', "4: agent 'a': agents[0].model: must be a name that does not begin with '-', got ''"),
        (f'{CLAUDE}model = "a\\u0000b"', "4: agent 'a': agents[0].model: must be a name that does not begin with '-', got 'a\\x00b'"),
        (f"{CLAUDE}retries = -1", "4: agent 'a': agents[0].retries: must be an integer from 0 on, got -1"),
        (f'{CLAUDE}json_schema = "x"', "4: agent 'a': agents[0].json_schema: must be a JSON schema as a text that holds an object, got 'x'"),
        (f'{CLAUDE}permission_mode = "plna"', "4: agent 'a': agents[0].permission_mode: 'plna' is not a choice (did you mean 'plan'?); accepted: acceptEdits, auto, bypassPermissions, default, dontAsk, plan, manual"),
        (f'{CLAUDE}account = ""', "4: agent 'a': agents[0].account: must be a name, not empty, got ''"),
        (f'{CLAUDE}worktrees = "x"', "4: agent 'a': agents[0].worktrees: has no effect without workspace 'worktree'"),
        (f'{CLAUDE}budget = {{ usd = 0, period = "1h" }}', "4: agent 'a': agents[0].budget.usd: must be a number above 0, got 0.0"),
        (f'{CLAUDE}mode = "exec"', "4: agent 'a': agents[0].mode: 'exec' is not a choice for Claude Code; accepted: session, oneshot"),
        (f'{CLAUDE}permission = [{{ tool = "", allow = true }}]', "4: agent 'a': agents[0].permission[0].tool: must be a tool's name, or a glob such as 'mcp__*', got ''"),
        (f'{CLAUDE}\n\nmodell = "x"', "6: agent 'a': agents[0].modell: unknown key (did you mean 'model'?)"),
        ('[[agents]]\nkind = "claude"', "1: agents[0].name: this key is missing"),
        (f'{CLAUDE}[[agents]]\nkind = "opencode"\nname = "b"\nmode = "serve"\nserver = "hub"', "8: agent 'b': agents[1].server: no server 'hub' is in this file; add a table [[servers]] with name = 'hub'"),
        (f'[[servers]]\nname = "hub"\n{CLAUDE}[[agents]]\nkind = "opencode"\nname = "b"\nmode = "serve"\nserver = "hob"', "10: agent 'b': agents[1].server: no server 'hob' is in this file (did you mean 'hub'?)"),
        ('[[agents]]\nkind = "opencode"\nname = "b"\nserver = "hub"', "4: agent 'b': agents[0].server: 'hub' has no effect in mode 'session': use mode='serve'"),
        ('[[agents]]\nkind = "acp"\nname = "b"\nargv = []', "4: agent 'b': agents[0].argv: must be a program and its arguments, got ()"),
        ('[[agents]]\nkind = "acp"\nname = "b"\nargv = ["x"]\nprofile = "y"', "5: agent 'b': agents[0].profile: 'y' is not known; known: generic, opencode, gemini, codex, claude"),
        (f'[[servers]]\nname = "hub"\nport = 99999\n{CLAUDE}', "3: servers[0].port: must be a number from 0 to 65535 (0: any that is free), got 99999"),
        (f'{CLAUDE}[[supervisors]]\nname = "s"\n[[supervisors.agents]]\nkind = "codex"\nname = "c"\nsandbox = "no"', "9: agent 'c': supervisors[0].agents[0].sandbox: 'no' is not a choice; accepted: read-only, workspace-write, danger-full-access"),
        (f"stagger = 0\n{CLAUDE}", f"1: stagger: expected {DURATION} above 0, got 0"),
        ("x = = 1", " line 1, column 5: Invalid value"),
    ],
)  # fmt: skip
def test_a_wrong_fleet_is_told_with_file_line_agent_and_status_2(
    tmp_path: Path, text: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "team.toml"
    path.write_text(f"{text}\n")
    assert dispatch(["up", str(path)]) == 2
    assert capfd.readouterr().err == f"proctor: {path}:{line}\n"


def test_all_that_is_wrong_with_a_fleet_is_told_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "team.toml"
    path.write_text(
        'strategy = "x"\n'
        f'{CLAUDE}max_turns = 0\nresume = "zzz"\nrestart = "on"\nmodel = 3\nenv = ["NOT_SET_HERE"]\n'
        '[[agents]]\nkind = "codex"\nname = "a"\nsandbox = "no"\nprompt = ""\n'
    )
    assert dispatch(["up", str(path)]) == 2
    told = [line.removeprefix(f"proctor: {path}:") for line in capfd.readouterr().err.splitlines()]
    assert sorted(int(line.partition(":")[0]) for line in told) == [1, 5, 6, 7, 8, 9, 12, 13, 14]


def test_all_that_is_wrong_with_a_run_is_told_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--model=", "--timeout=x", "--resume=zzz", "--cwd=/nope", "--env==x", "--record=", "--mode=exec")
    assert dispatch(["run", "claude", "", *words]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted(
        ("--model", "--timeout", "--resume", "--cwd", "--env", "--record", "--mode", "the")
    )


def test_all_that_is_wrong_with_an_agent_is_raised_at_once() -> None:
    with pytest.raises(proctor.BadOption) as caught:
        proctor.claude("a", max_turns=0, max_budget_usd=-3, resume="zzz", model="", silence=0, mode="exec")
    assert {fault.option for fault in caught.value.faults} == {
        *("max_turns", "max_budget_usd", "resume", "model", "silence", "mode")
    }
    assert len(str(caught.value).splitlines()) == 6


def claude(**options: Any) -> Callable[[], object]:
    return lambda: proctor.claude("a", **options)


def scripted() -> proctor.ChildSpec:
    return proctor.scripted("a", command.EXAMPLES / "hello.ndjson")


def one_shot(prompt: Any = "hi", **options: Any) -> Callable[[], object]:
    return lambda: trio.run(lambda: proctor.ask(scripted(), prompt, **options))


def held(prompt: Any = "hi", *, name: str = "a", **options: Any) -> Callable[[], object]:
    async def ask() -> None:
        async with proctor.open_supervisor([scripted()]) as tree:
            await tree.agent(name).ask(prompt, **options)

    return lambda: trio.run(ask)


def tree(**options: Any) -> Callable[[], object]:
    async def start() -> None:
        async with proctor.open_supervisor([], **options):
            pass

    return lambda: trio.run(start)


BAD = proctor.BadOption
ONE = proctor.claude("a")
SHOWN = f"{ONE!r:.97}..."


@each_row(
    ("call", "kind", "text"),
    [
        (claude(max_turns=0), BAD, "agent 'a': max_turns must be an integer from 1 on, got 0"),
        (claude(max_turns=True), BAD, "agent 'a': max_turns must be an integer from 1 on, got True"),
        (claude(max_turns="3"), BAD, "agent 'a': max_turns must be an integer from 1 on, got '3'"),
        (claude(max_budget_usd=math.nan), BAD, "agent 'a': max_budget_usd must be a number of US dollars above 0, got nan"),
        (claude(resume=""), BAD, "agent 'a': resume must be a session's UUID, got ''"),
        (claude(session_id="zzz"), BAD, "agent 'a': session_id must be a session's UUID, got 'zzz'"),
        (claude(sandbox="zzz"), BAD, "agent 'a': sandbox 'zzz' is not a choice; accepted: read-only, workspace-write, danger-full-access"),
        (claude(model="-x"), BAD, "agent 'a': model must be a name that does not begin with '-', got '-x'"),
        (claude(tools="Bash"), BAD, "agent 'a': tools must be a tuple of texts, got 'Bash'"),
        (claude(extra="--foo"), BAD, "agent 'a': extra must be a tuple of texts, got '--foo'"),
        (claude(add_dirs=("/nope",)), BAD, "agent 'a': add_dirs must be a tuple of paths of directories, got ('/nope',)"),
        (claude(env={"A=B": "secret"}), BAD, "agent 'a': env must be a mapping of names without '=' to texts without a NUL, got a value of type dict"),
        (claude(json_schema={"a": 1}), BAD, "agent 'a': json_schema must be a JSON schema as a text that holds an object, got {'a': 1}"),
        (claude(cwd=3), BAD, "agent 'a': cwd must be the path of a directory, got 3"),
        (claude(system_prompt=3), BAD, "agent 'a': system_prompt must be a text without a NUL, got 3"),
        (claude(permission=("x",)), BAD, "agent 'a': permission ('x',) is not a choice; accepted: deny, allow, ask, rules, or a function"),
        (claude(permission="alow"), BAD, "agent 'a': permission 'alow' is not a choice (did you mean 'allow'?); accepted: deny, allow, ask, rules, or a function"),
        (claude(park="no"), BAD, "agent 'a': park must be True or False, got 'no'"),
        (claude(budget=3), BAD, "agent 'a': budget must be a Budget, got 3"),
        (claude(host_tools=3), BAD, "agent 'a': host_tools must be a sequence of tools, got 3"),
        (claude(mcp=3), BAD, "agent 'a': mcp must be a mapping of names to records of McpServer, got a value of type int"),
        (claude(silence="10s"), BAD, "agent 'a': silence must be a number of seconds above 0, got '10s'"),
        (claude(modell="x"), BAD, "agent 'a': unknown option 'modell' (did you mean 'model'?)"),
        (claude(restart="x"), InvalidSpec, "restart of 'a' is 'x': expected 'permanent' or 'transient' or 'temporary'"),
        (lambda: proctor.codex("a", effort="zzz"), BAD, "agent 'a': effort 'zzz' is not a choice; accepted: none, minimal, low, medium, high, xhigh, max, ultra"),
        (lambda: proctor.codex("a", permission_mode="plan"), BAD, "agent 'a': permission_mode 'plan' is not a choice; accepted: untrusted, on-failure, on-request, never"),
        (lambda: proctor.acp("a", [3]), BAD, "agent 'a': argv must be a program and its arguments, got [3]"),  # type: ignore[list-item]
        (lambda: proctor.opencode("a", mode="serve"), BAD, "agent 'a': server must be the id of an opencode_server in mode 'serve', got None"),
        (lambda: proctor.opencode_server("h", port=-1), BAD, "server 'h': port must be a number from 0 to 65535 (0: any that is free), got -1"),
        (lambda: proctor.opencode_server("h", cwd="/nope"), BAD, "server 'h': cwd must be the path of a directory, got '/nope'"),
        (lambda: proctor.Rule("", True), BAD, "tool of a Rule must be a tool's name, or a glob such as 'mcp__*', got ''"),
        (lambda: proctor.Verdict("no"), BAD, "allow of a Verdict must be True or False, got 'no'"),  # type: ignore[arg-type]
        (lambda: proctor.Hook("Stop", 3), BAD, "a hook is an async function, got 3"),  # type: ignore[arg-type]
        (one_shot(""), BAD, "prompt must be a text that is not blank, got ''"),
        (one_shot(" \n"), BAD, "prompt must be a text that is not blank, got ' \\n'"),
        (one_shot(3), BAD, "prompt must be a text that is not blank, got 3"),
        (one_shot("\ud800"), BAD, "prompt must be a text that is not blank, got '\\ud800'"),
        (one_shot(timeout=-1), BAD, "timeout must be a number of seconds from 0 on, got -1"),
        (one_shot(payloads=3), BAD, "payloads must be a sequence of payloads, got 3"),
        (lambda: trio.run(lambda: proctor.ask("claude", "hi")), BAD, "an agent is what proctor.claude and its like make, got 'claude'"),  # type: ignore[call-overload]
        (held(""), BAD, "prompt must be a text that is not blank, got ''"),
        (held(timeout="3"), BAD, "timeout must be a number of seconds from 0 on, got '3'"),
        (held(timeout=math.nan), BAD, "timeout must be a number of seconds from 0 on, got nan"),
        (tree(budget=3), BAD, "budget must be a Budget, got 3"),
        (tree(stagger=-1), BAD, "stagger must be a number of seconds from 0 on, got -1"),
        (tree(intensity=-1), InvalidSpec, "intensity is -1: expected an int >= 0"),
        (lambda: proctor.open_supervisor(ONE), InvalidSpec, f"children is {SHOWN}: expected a sequence of ChildSpecs, such as a list of this one"),  # type: ignore[arg-type]
        (lambda: proctor.supervisor_spec("s", ONE), InvalidSpec, f"children is {SHOWN}: expected a sequence of ChildSpecs, such as a list of this one"),  # type: ignore[arg-type]
        (lambda: proctor.open_supervisor(3), InvalidSpec, "children is 3: expected a sequence of ChildSpecs"),  # type: ignore[arg-type]
        (lambda: proctor.open_supervisor([3]), InvalidSpec, "spec is 3: expected a ChildSpec"),  # type: ignore[list-item]
        (lambda: proctor.Sessions(3), BAD, "root of the sessions must be the path of a folder, got 3"),  # type: ignore[arg-type]
        (lambda: proctor.Sessions(b"x"), BAD, "root of the sessions must be the path of a folder, got b'x'"),  # type: ignore[arg-type]
        (lambda: proctor.Sessions(""), BAD, "root of the sessions must be the path of a folder, got ''"),
        (lambda: proctor.Sessions("x", ttl="1h"), BAD, "ttl must be a number of seconds above 0, got '1h'"),  # type: ignore[arg-type]
        (lambda: proctor.Sessions("x", limit="3"), BAD, "limit must be a number of sessions above 0, got '3'"),  # type: ignore[arg-type]
        (lambda: proctor.pool_spec("p", ONE), BAD, "pool of 'p' must be a Pool or Pools, got the spec of 'a'; agents are named when the pool runs them"),  # type: ignore[arg-type]
        (lambda: proctor.pool_spec("p", 3), BAD, "pool of 'p' must be a Pool or Pools, got 3"),  # type: ignore[arg-type]
        (lambda: proctor.Pool("x", warm=3), BAD, "warm must be a sequence of Warm, got 3"),  # type: ignore[arg-type]
        (lambda: proctor.Pool("x", warm=[ONE]), BAD, "warm must be a sequence of Warm, got the spec of 'a' in it"),  # type: ignore[list-item]
        (lambda: proctor.Pools(limits=3), BAD, "limits must be a mapping of kinds to numbers, got 3"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused_with_one_line(
    call: Callable[[], object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


def test_a_name_that_no_agent_has_is_answered_with_the_one_that_was_meant() -> None:
    async def ask() -> None:
        async with proctor.open_supervisor(
            [proctor.scripted("reviewer", command.EXAMPLES / "hello.ndjson")]
        ) as tree:
            await tree.agent("revewer").ask("hi")

    with pytest.raises(proctor.NoProc) as caught:
        trio.run(ask)
    assert str(caught.value) == "no such actor: revewer (did you mean 'reviewer'?)"


def test_the_version_is_an_attribute_of_the_package(capfd: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["--version"]) == 0
    assert capfd.readouterr().out == f"proctor {proctor.__version__}\n"


@pytest.mark.parametrize(("words", "same"), [(("help",), ("--help",)), (("help", "run"), ("run", "--help"))])
def test_help_of_a_command_is_a_command(
    words: tuple[str, ...], same: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(words) == 0
    shown = capfd.readouterr().out
    assert dispatch(same) == 0
    assert shown == capfd.readouterr().out
    assert "Usage: proctor" in shown


def test_a_missing_program_is_told_with_the_cure_before_the_places(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROCTOR_GEMINI")
    monkeypatch.setenv("PATH", str(home))
    assert dispatch(["run", "gemini", "hi"]) == 69
    assert capfd.readouterr().err.startswith(
        "proctor: Gemini CLI is not installed; install it with: npm install -g @google/gemini-cli (looked for "
    )


@pytest.mark.parametrize("dialect", ["claude", "codex", "acp", "gemini", "opencode", "opencode-run"])
def test_an_option_that_its_owner_did_not_give_makes_no_notice(dialect: str) -> None:
    async def notices() -> list[str]:
        spec = proctor.scripted("a", command.EXAMPLES / "hello.ndjson", dialect=dialect)
        async with proctor.stream(spec, "hi") as live:
            return [
                e.text async for e in live if isinstance(e, proctor.Notice) and e.code == "option_ignored"
            ]

    assert trio.run(notices) == []


def test_every_option_of_an_agent_says_what_it_takes() -> None:
    assert set(OPTIONS) == set(AgentOptions.__optional_keys__)
