from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

import proctor
from proctor.actors.durations import duration, format_duration, limit
from proctor.actors.errors import FleetFaults
from proctor.actors.fleet.fleet import Fleet, load_fleet
from proctor.actors.plan.permissions import Rule
from proctor.actors.plan.plan import plan_of
from proctor.runtime.spec import Backoff, ChildSpec
from tests.tables import each_row

Written = Callable[[str], Path]

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTED = '[[agents]]\nkind = "scripted"\nscript = "a.ndjson"\nname = "a"\n'
CLAUDE = '[[agents]]\nkind = "claude"\nname = "a"\n'


@pytest.fixture
def written(tmp_path: Path) -> Written:
    (tmp_path / "a.ndjson").write_text('{"reply": "x"}\n')
    (tmp_path / "broken.ndjson").write_text('{"reply": "x"}\n{"no such step": 1}\n')
    (tmp_path / "repo").mkdir()

    def write(text: str) -> Path:
        path = tmp_path / "team.toml"
        path.write_text(text)
        return path

    return write


def faults(path: Path) -> tuple[str, ...]:
    with pytest.raises(FleetFaults) as caught:
        load_fleet(path)
    lines = str(caught.value).splitlines()
    for line, fault in zip(lines, caught.value.faults, strict=True):
        assert line.startswith(f"{path}:")
        assert line.endswith(f": {fault}")
    return caught.value.faults


def only(fleet: Fleet) -> ChildSpec:
    [spec] = fleet.specs()
    return spec


def test_the_fleet_of_the_design_is_read(written: Written) -> None:
    fleet = load_fleet(
        written("""
strategy = "one_for_one"
intensity = 3
period = "60s"

[[agents]]
kind = "claude"
name = "reviewer"
cwd = "repo"
model = "sonnet"
restart = "transient"
shutdown = "10s"
permission = "deny"
prompt = "Review the last commit."

[[supervisors]]
name = "fixers"
strategy = "rest_for_one"
[[supervisors.agents]]
kind = "scripted"
name = "fixer"
script = "a.ndjson"
""")
    )
    assert fleet.flags() == {
        "strategy": "one_for_one",
        "intensity": 3,
        "period": 60.0,
        "stop_order": "parallel",
    }
    reviewer, fixers = fleet.specs()
    assert (reviewer.id, reviewer.name, reviewer.restart, reviewer.shutdown) == (
        "reviewer",
        "reviewer",
        "transient",
        10.0,
    )
    plan = plan_of(reviewer)
    assert (plan.launch.model, plan.conduct.permission, plan.shutdown) == ("sonnet", "deny", 10.0)
    assert str(plan.workplace.cwd).endswith("/repo")
    assert (fixers.id, fixers.type) == ("fixers", "supervisor")
    assert [(path, member.prompt) for path, member in fleet.members(fleet.name)] == [
        ("team/reviewer", "Review the last commit."),
        ("team/fixers/fixer", None),
    ]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_an_example_is_a_fleet(example: Path) -> None:
    assert load_fleet(example).specs()


def test_what_is_left_out_has_the_defaults_of_its_own_record(written: Written) -> None:
    spec, plain = only(load_fleet(written(CLAUDE))), ChildSpec("a", print)
    assert (spec.restart, spec.significant, spec.mailbox) == (plain.restart, plain.significant, plain.mailbox)
    plan = plan_of(spec)
    assert (plan.clocks.greeting, plan.conduct.on_crash, plan.workplace.home) == (60.0, "fail", "user")


def test_every_option_of_an_agent_reaches_its_plan(written: Written) -> None:
    spec = only(
        load_fleet(
            written(
                CLAUDE
                + """
env = ["A=1"]
home = "private"
mode = "oneshot"
on_crash = "retry"
park = false
silence = "none"
greeting = 5
approval_deadline = "1m30s"
permission = [{ tool = "Read", allow = true }, { tool = "*", allow = false }]
tools = ["Bash", "Read"]
add_dirs = ["repo"]
max_turns = 3
max_budget_usd = 2
record = "runs"
shutdown = "brutal_kill"
start_timeout = "2m"
backoff = { min_delay = 2, max_delay = "1m", jitter = 0, max_in_row = 5 }
"""
            )
        )
    )
    plan = plan_of(spec)
    assert (dict(plan.workplace.env), plan.workplace.home, plan.launch.mode) == (
        {"A": "1"},
        "private",
        "oneshot",
    )
    assert (plan.conduct.on_crash, plan.conduct.park, plan.clocks.silence) == ("retry", False, math.inf)
    assert (plan.clocks.greeting, plan.conduct.approval_deadline) == (5.0, 90.0)
    assert plan.conduct.permission == (Rule("Read", True), Rule("*", False))
    assert (plan.launch.tools, plan.launch.max_turns, plan.launch.max_budget_usd) == (
        ("Bash", "Read"),
        3,
        2.0,
    )
    assert [Path(folder).name for folder in plan.launch.add_dirs] == ["repo"]
    assert str(plan.workplace.record).endswith("/runs")
    assert (spec.shutdown, spec.start_timeout) == ("brutal_kill", 120.0)
    assert spec.backoff == Backoff(min_delay=2, max_delay=60, jitter=0, max_in_row=5)


def test_an_agent_that_names_no_folder_is_recorded_in_the_one_given(written: Written, tmp_path: Path) -> None:
    fleet = load_fleet(written(f'{SCRIPTED}[[agents]]\nkind = "claude"\nname = "b"\nrecord = "own"\n'))
    places = [plan_of(spec).workplace.record for spec in fleet.specs(tmp_path / "all")]
    assert places == [tmp_path / "all", tmp_path / "own"]


def test_the_folder_of_the_file_is_where_its_paths_begin(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(f'{SCRIPTED}cwd = "repo"\n')
    monkeypatch.chdir(path.parent.parent)
    fleet = load_fleet(Path(path.parent.name) / path.name)
    assert plan_of(only(fleet)).workplace.cwd == tmp_path / "repo"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('strategy = "x"\n', "strategy: 'x' is not a choice; accepted: one_for_one, one_for_all, rest_for_one"),
        ("strategy = 1\n", "strategy: 1 is not a choice; accepted: one_for_one, one_for_all, rest_for_one"),
        ('intensity = "3"\n', "intensity: expected an integer, got '3'"),
        ("intensity = true\n", "intensity: expected an integer, got true"),
        ("intensity = -1\n", "intensity: -1 is not accepted; expected an int >= 0"),
        ("period = 0\n", "period: expected a duration such as 90, '30s' or '1h30m' above 0, got 0"),
        ('period = "1 hour"\n', "period: expected a duration such as 90, '30s' or '1h30m', got '1 hour'"),
        ("period = nan\n", "period: expected a duration such as 90, '30s' or '1h30m', got nan"),
        ('auto_shutdown = "always"\n', "auto_shutdown: 'always' is not a choice; accepted: never, any_significant, all_significant"),
        ('intensty = 1\n', "intensty: unknown key (did you mean 'intensity'?)"),
        ('name = "a/b"\n', "name: 'a/b' is not accepted; expected a text, not empty, without '/'"),
        ("supervisors = 1\n", "supervisors: expected an array, got 1"),
        ("[[supervisors]]\n", "supervisors[0].name: this key is missing"),
        ('[[supervisors]]\nname = "s"\n[supervisors.agents]\n', "supervisors[0].agents: expected an array, got a table"),
        ('[[supervisors]]\nname = "s"\nperiod = "x"\n', "supervisors[0].period: expected a duration such as 90, '30s' or '1h30m', got 'x'"),
        ('[[supervisors]]\nname = "a"\n', "supervisors[0].name: 'a' is used twice, in agents[0] too"),
    ],
)  # fmt: skip
def test_a_fault_of_a_supervisor_is_told_with_its_place(written: Written, text: str, fault: str) -> None:
    parts = (SCRIPTED, text) if text.startswith("[") else (text, SCRIPTED)
    assert faults(written("".join(parts))) == (fault,)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('restart = "transent"', "restart: 'transent' is not a choice; accepted: permanent, transient, temporary"),
        ('shutdown = "kill"', "shutdown: expected a duration such as 90, '30s' or '1h30m', got 'kill'; or 'brutal_kill'"),
        ("significant = true", "significant: true is not accepted; expected False for a permanent child"),
        ('restart = "transient"\nsignificant = true', "significant: true is not accepted; expected False where auto_shutdown is 'never'"),
        ("start_timeout = 0", "start_timeout: expected a duration such as 90, '30s' or '1h30m' above 0, got 0"),
        ("backoff = 2", "backoff: expected a table, got 2"),
        ('backoff = { min = "1s" }', "backoff.min: unknown key"),
        ("backoff = { min_delay = 0 }", "backoff.min_delay: expected a duration such as 90, '30s' or '1h30m' above 0, got 0"),
        ("backoff = { min_delay = 5, max_delay = 2 }", "backoff.max_delay: 2.0 is not accepted; expected >= min_delay, 5.0"),
        ('cwd = "nowhere"', "cwd: expected a directory, got '{folder}/nowhere'"),
        ("cwd = 1", "cwd: expected a path, got 1"),
        ('env = ["NOT_SET_HERE"]', "env: 'NOT_SET_HERE': not set here; write NOT_SET_HERE=VALUE to give it one"),
        ('env = "A=1"', "env: expected an array, got 'A=1'"),
        ("env = [1]", "env[0]: expected a string, got 1"),
        ('home = "own"', "home: 'own' is not a choice; accepted: user, private"),
        ('mode = "x"', "mode: 'x' is not a choice; accepted: session, oneshot"),
        ('on_crash = "restart"', "on_crash: 'restart' is not a choice; accepted: fail, resume, retry"),
        ('park = "no"', "park: expected true or false, got 'no'"),
        ("model = 3", "model: expected a string, got 3"),
        ("max_turns = 1.5", "max_turns: expected an integer, got 1.5"),
        ('silence = "long"', "silence: expected a duration such as 90, '30s' or '1h30m', or 0 or 'none' for no limit, got 'long'"),
        ('timeout = "x"', "timeout: expected a duration such as 90, '30s' or '1h30m', or 0 or 'none' for no limit, got 'x'"),
        ('permission = "maybe"', "permission: 'maybe' is not a choice; accepted: deny, allow, ask, or rules such as [{ tool = 'Read', allow = true }]"),
        ('permission = [{ tool = "x" }]', "permission[0].allow: this key is missing"),
        ('modell = "x"', "modell: unknown key (did you mean 'model'?)"),
        ('faults = ["melt"]', "faults: "),
        ("speed = true", "speed: expected a number, got true"),
    ],
)  # fmt: skip
def test_a_fault_of_an_agent_is_told_with_its_place(
    written: Written, tmp_path: Path, text: str, fault: str
) -> None:
    [told] = faults(written(f"{SCRIPTED}{text}\n"))
    assert told.startswith(
        f"agents[0].{fault.format(folder=tmp_path)}" if "{folder}" in fault else f"agents[0].{fault}"
    )


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ('name = "a"', "agents[0].kind: this key is missing; accepted: claude, codex, opencode, gemini, acp, scripted"),
        ('kind = "gemni"\nname = "a"', "agents[0].kind: 'gemni' is not a kind; accepted: claude, codex, opencode, gemini, acp, scripted"),
        ('kind = "claude"', "agents[0].name: this key is missing"),
        ('kind = "claude"\nname = "a/b"', "agents[0].name: 'a/b' is not accepted; expected a text, not empty, without '/'"),
        ('kind = "claude"\nname = ""', "agents[0].name: '' is not accepted; expected a text, not empty, without '/'"),
        ('kind = "scripted"\nname = "a"', "agents[0].script: this key is missing"),
        ('kind = "claude"\nname = "a"\nscript = "a.ndjson"', "agents[0].script: unknown key; known: name, prompt, "),
    ],
)  # fmt: skip
def test_a_table_that_is_no_agent_is_told_what_is_missing(written: Written, table: str, fault: str) -> None:
    [told] = faults(written(f"[[agents]]\n{table}\n"))
    assert told.startswith(fault)


def test_a_broken_script_is_told_with_its_own_line(written: Written) -> None:
    [told] = faults(written('[[agents]]\nkind = "scripted"\nname = "a"\nscript = "broken.ndjson"\n'))
    assert told.startswith("agents[0].script: ")
    assert "broken.ndjson:2:" in told


def test_all_faults_are_found_in_one_reading(written: Written) -> None:
    text = 'intensity = "x"\n[[agents]]\nkind = "claude"\n[[agents]]\nkind = "no"\n[[agents]]\nkind = "claude"\nname = "c"\npark = 1\ncwd = "nowhere"\n'
    places = [fault.partition(":")[0] for fault in faults(written(text))]
    assert sorted(places) == [
        "agents[0].name",
        "agents[1].kind",
        "agents[2].cwd",
        "agents[2].park",
        "intensity",
    ]


def test_an_agent_used_twice_in_different_supervisors_is_a_fault(written: Written) -> None:
    nested = SCRIPTED.replace("[[agents]]", "[[supervisors.agents]]")
    text = f'{SCRIPTED}[[supervisors]]\nname = "s"\n{nested}'
    assert faults(written(text)) == ("supervisors[0].agents[0].name: 'a' is used twice, in agents[0] too",)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"a = = 1\n", "line 1, column 5: Invalid value"),
        (b"\n[x\n", "line 2, column 3: "),
        (b'name = "\xff"\n', "is not UTF-8: byte 0xff at 8"),
        (b"", "no agent: add a table [[agents]] with kind and name"),
    ],
)
def test_a_file_that_is_not_toml_is_told_with_line_and_column(
    written: Written, data: bytes, fault: str
) -> None:
    path = written("")
    path.write_bytes(data)
    [told] = faults(path)
    assert told.startswith(fault)


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    assert faults(tmp_path / "none.toml") == ("cannot be read: No such file or directory",)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(30, 30.0), (1.5, 1.5), ("90", 90.0), ("30s", 30.0), ("1h30m", 5400.0), ("250ms", 0.25), ("2d", 172800.0), (0, 0.0)],
)  # fmt: skip
def test_a_duration_is_read(given: object, seconds: float) -> None:
    assert duration(given) == seconds


@pytest.mark.parametrize("given", [-1, True, "", "x", "1 h", "h1", "-3s", math.inf, math.nan, None, "٣s"])
def test_what_is_no_duration_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 90, '30s' or '1h30m', got"):
        duration(given)


@pytest.mark.parametrize(
    ("given", "seconds"), [("none", math.inf), (0, math.inf), ("0", math.inf), ("5m", 300.0)]
)
def test_a_limit_may_be_none(given: object, seconds: float) -> None:
    assert limit(given) == seconds


@each_row(
    ("seconds", "text"),
    [
        (0.04, "0 s"),
        (0.42, "0.4 s"),
        (12, "12 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (7205, "2 h"),
        (273600, "3 d 4 h"),
        (-1, "0 s"),
        (math.inf, "no limit"),
    ],
)
def test_a_length_of_time_is_spelled_in_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_every_kind_of_agent_and_what_a_tree_shares_are_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(
        """
        stagger = "2s"
        [budget]
        usd = 40
        period = "24h"
        then = "escalate"
        [[servers]]
        name = "hub"
        start = "90s"
        [[agents]]
        kind = "codex"
        name = "fixer"
        sandbox = "workspace-write"
        mode = "exec"
        [agents.budget]
        usd = 5
        period = "1h"
        [[agents]]
        kind = "opencode"
        name = "scribe"
        mode = "serve"
        server = "hub"
        permission = "ask"
        [[agents]]
        kind = "acp"
        name = "other"
        argv = ["gemini", "--acp"]
        profile = "gemini"
        """
    )
    fleet = load_fleet(path)
    assert [spec.id for spec in fleet.specs()] == ["hub", "fixer", "scribe", "other"]
    assert fleet.tree() == {"stagger": 2.0, "budget": proctor.Budget(40, 86400.0, then="escalate")}
    fixer, scribe, other = (plan_of(spec) for spec in fleet.specs()[1:])
    assert (fixer.dialect.name, fixer.launch.mode, fixer.conduct.budget) == (
        "codex",
        "oneshot",
        proctor.Budget(5, 3600.0),
    )
    assert (scribe.dialect.name, scribe.conduct.permission) == ("opencode-serve", "ask")
    assert (other.dialect.name, other.arguments) == ("gemini", ("--acp",))


def test_gemini_is_a_kind_of_its_own_in_a_fleet(written: Written) -> None:
    spec = only(load_fleet(written('[[agents]]\nkind = "gemini"\nname = "a"\nmodel = "gemini-2.5-pro"\n')))
    plan, made = plan_of(spec), plan_of(proctor.gemini("a", model="gemini-2.5-pro"))
    assert (plan.dialect.name, plan.arguments, plan.product) == (
        made.dialect.name,
        ("--acp",),
        made.product,
    )
    assert (plan.launch.model, plan.product and plan.product.program) == ("gemini-2.5-pro", "gemini")


def test_a_server_without_the_mode_that_needs_it_is_told_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[[agents]]\nkind = "opencode"\nname = "a"\nserver = "hub"\n')
    with pytest.raises(FleetFaults, match=r"agents\[0\].server: .*mode='serve'"):
        load_fleet(path)


@pytest.mark.covers("R161", "R164")
def test_the_servers_of_mcp_and_the_context_of_an_agent(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_TOKEN", "s3cret")
    monkeypatch.setenv("FAR_KEY", "Bearer s3cret")
    (written("").parent / "more.json").write_text('{"mcpServers": {"third": {"command": "/third"}}}')
    text = """mcp_config = "more.json"
context = { project = "p1" }
[agents.mcp.tiny]
command = "/bin/tiny"
args = ["-x"]
env = ["TINY_TOKEN", "LEVEL=2"]
approved = true
[agents.mcp.far]
url = "https://example.org/mcp"
headers = { X-Team = "docs" }
secret_headers = { Authorization = "FAR_KEY" }
timeout = "2m"
"""
    plan = plan_of(only(load_fleet(written(CLAUDE + text))))
    tiny, far, third = (plan.launch.mcp[name] for name in ("tiny", "far", "third"))
    assert (tiny.command, tiny.args, tiny.approved) == ("/bin/tiny", ("-x",), True)
    assert tiny.env == {"PROCTOR_CONTEXT_PROJECT": "p1", "TINY_TOKEN": "s3cret", "LEVEL": "2"}
    assert (far.url, far.timeout, third.command) == ("https://example.org/mcp", 120, "/third")
    assert far.headers == {
        "Proctor-Context-Project": "p1",
        "X-Team": "docs",
        "Authorization": "Bearer s3cret",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mcp = 3", "agents[0].mcp: expected a table, got 3"),
        ("mcp = { tiny = 3 }", "agents[0].mcp.tiny: expected a table, got 3"),
        ("mcp.tiny.comand = 'x'", "agents[0].mcp.tiny.comand: unknown key (did you mean 'command'?)"),
        ("mcp.tiny.args = ['x']", "agents[0].mcp.tiny: an MCP server has either a command or a url"),
        (
            "mcp.tiny = { url = 'http://a', secret_headers = { A = 'NOT_SET_HERE' } }",
            "agents[0].mcp.tiny.secret_headers: names 'NOT_SET_HERE', which is not set here",
        ),
        ("mcp.host.command = 'x'", "agents[0]: MCP server 'host': names that begin with 'host'"),
        ("context.Project = 'x'", "agents[0].context: 'Project': a name is lower-case letters"),
    ],
)
def test_a_fault_of_a_server_of_mcp_is_told_with_its_place(written: Written, text: str, fault: str) -> None:
    assert [one for one in faults(written(CLAUDE + text)) if one.startswith(fault)] != []


def test_agents_that_do_not_depend_on_each_other_stop_together(written: Written) -> None:
    path = written(
        """
        [[agents]]
        kind = "codex"
        name = "one"
        [[supervisors]]
        name = "in order"
        stop_order = "reverse"
        [[supervisors]]
        name = "on a server"
        [[supervisors.servers]]
        name = "hub"
        [[supervisors]]
        name = "after each other"
        strategy = "rest_for_one"
        """
    )
    fleet = load_fleet(path)
    orders = {name: group.flags().get("stop_order") for name, group in fleet.groups("fleet")}
    assert orders == {
        "fleet": "parallel",
        "fleet/in order": "reverse",
        "fleet/on a server": None,
        "fleet/after each other": None,
    }


def test_a_stop_order_that_the_strategy_does_not_have_is_a_fault_of_its_line(written: Written) -> None:
    [fault] = faults(written('strategy = "rest_for_one"\nstop_order = "parallel"\n' + CLAUDE))
    assert fault.startswith("stop_order: ")
    assert "rest_for_one" in fault


def test_what_all_agents_share_is_written_once(written: Written) -> None:
    text = """
[defaults]
kind = "claude"
model = "sonnet"
permission = "ask"
restart = "transient"
prompt = "Look."

[[agents]]
name = "a"

[[supervisors]]
name = "s"
[[supervisors.agents]]
name = "b"
model = "opus"

[[agents]]
kind = "scripted"
name = "c"
script = "a.ndjson"
prompt = "Mine."
"""
    fleet = load_fleet(written(text))
    found = {member.name: member for _, member in fleet.members("")}
    assert [(name, plan_of(member.spec()).launch.model) for name, member in found.items()] == [
        ("a", "sonnet"),
        ("c", "sonnet"),
        ("b", "opus"),
    ]
    assert [member.prompt for member in found.values()] == ["Look.", "Mine.", "Look."]
    assert {member.spec().restart for member in found.values()} == {"transient"}


def test_a_default_that_a_kind_does_not_have_is_for_the_others(written: Written) -> None:
    text = f'{SCRIPTED}[[agents]]\nkind = "claude"\nname = "b"\n[defaults]\nspeed = 2.0\n'
    assert [spec.id for spec in load_fleet(written(text)).specs()] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('modell = "x"', "defaults.modell: unknown key (did you mean 'model'?)"),
        ('name = "x"', "defaults.name: is of one agent alone"),
        ('restart = "x"', "defaults.restart: 'x' is not a choice; accepted: permanent, transient, temporary"),
        ("backoff = { min_delay = 0 }", "defaults.backoff.min_delay: expected a duration such as 90, '30s' or '1h30m' above 0, got 0"),
    ],
)  # fmt: skip
def test_a_fault_of_the_defaults_is_one_line_at_its_own_place(
    written: Written, text: str, fault: str
) -> None:
    other = SCRIPTED.replace('"a"', '"b"')
    assert faults(written(f"{SCRIPTED}{other}[defaults]\n{text}\n")) == (fault,)


def test_defaults_that_are_no_table_are_a_fault(written: Written) -> None:
    assert faults(written(f"defaults = 1\n{SCRIPTED}")) == ("defaults: expected a table",)


def test_variables_are_filled_in_and_may_have_a_default(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRANCH", "main")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    prompt = "${BRANCH} ${NOT_SET_HERE:-x y} ${EMPTY:-z}${EMPTY} $${BRANCH} ${1} $BRANCH ${x%.*}"
    fleet = load_fleet(written(f"{SCRIPTED}prompt = '{prompt}'\nenv = ['A=${{BRANCH}}']\n"))
    [(_, member)] = fleet.members("")
    assert member.prompt == "main x y z ${BRANCH} ${1} $BRANCH ${x%.*}"
    assert plan_of(only(fleet)).workplace.env["A"] == "main"


def test_a_variable_that_is_not_set_is_a_fault_at_its_place(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    found = faults(written(f"{SCRIPTED}prompt = 'x'\nenv = ['B=1', 'A=${{NOT_SET_HERE}}']\n"))
    [fault] = found
    assert fault.startswith(
        "agents[0].env[1]: the variable NOT_SET_HERE is not set; ${NOT_SET_HERE:-VALUE} has"
    )


def test_a_prompt_is_read_from_a_file_beside_the_fleet(written: Written, tmp_path: Path) -> None:
    (tmp_path / "review.md").write_text("Review.\nAll of it, ${AS_IT_IS}.\n")
    fleet = load_fleet(written(f'{SCRIPTED}prompt_file = "review.md"\n'))
    [(_, member)] = fleet.members("")
    assert member.prompt == "Review.\nAll of it, ${AS_IT_IS}.\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('prompt_file = "none.md"', "prompt_file: {folder}/none.md: cannot be read: No such file or directory"),
        ('prompt_file = "empty.md"', "prompt_file: "),
        ('prompt_file = "bad.md"', "prompt_file: {folder}/bad.md: is not UTF-8: byte 0xff at 0"),
        ('prompt_file = "good.md"\nprompt = "x"', "prompt_file: is given beside prompt: leave one out"),
        ("replicas = 0", "replicas: must be from 1 to 1000, got 0"),
        ("replicas = 100000", "replicas: must be from 1 to 1000, got 100000"),
        ('replicas = "2"', "replicas: expected an integer, got '2'"),
    ],
)  # fmt: skip
def test_a_prompt_file_or_a_number_of_replicas_that_cannot_be_is_a_fault(
    written: Written, tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "empty.md").write_text("")
    (tmp_path / "bad.md").write_bytes(b"\xff")
    (tmp_path / "good.md").write_text("x")
    [found] = faults(written(f"{SCRIPTED}{text}\n"))
    assert found.startswith(f"agents[0].{fault.format(folder=tmp_path)}")


def test_replicas_are_agents_of_their_own(written: Written) -> None:
    fleet = load_fleet(written(f'{SCRIPTED}replicas = 3\nprompt = "x"\n'))
    assert [(path, member.prompt) for path, member in fleet.members("f")] == [
        ("f/a-1", "x"),
        ("f/a-2", "x"),
        ("f/a-3", "x"),
    ]
    assert [spec.id for spec in fleet.specs()] == ["a-1", "a-2", "a-3"]


def test_the_name_of_a_replica_is_used_once(written: Written) -> None:
    other = SCRIPTED.replace('"a"', '"a-2"')
    text = f"{SCRIPTED}replicas = 2\n{other}"
    assert faults(written(text)) == ("agents[1].name: 'a-2' is used twice, in agents[0] too",)
