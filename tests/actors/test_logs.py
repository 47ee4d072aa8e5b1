from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.plan.plan import plan_of
from proctor.actors.process.agent_log import FACTS
from proctor.actors.runs import ask
from proctor.actors.specs import agent_spec
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import Step, write_script
from tests.actors.spoken import spoken_plan

ASKED, SAID = "what-only-the-caller-knows", "what-only-the-agent-says"
TALK: Sequence[Step] = (
    {"turn": "crash", "when": "crash"},
    {"say": SAID},
    {"fault": "crash"},
    {"turn": "talk"},
    {"say": SAID},
    {"tool": "Bash", "input": {"command": SAID}, "result": SAID},
    {"reply": SAID},
)


def agent_in(folder: Path) -> ChildSpec:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "state")}
    return proctor.scripted("talker", write_script(folder, TALK), env=env, shutdown=2)


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, object]]:
    """The fields of each record of an event, none more and none less than promised."""
    records = [vars(record) for record in caplog.records if getattr(record, "event", "") == event]
    return [{name: record[name] for name in FACTS[event]} for record in records]


@pytest.mark.covers("R179", "R020", "L12")
async def test_a_life_is_told_in_records_with_fields_and_never_in_what_was_said(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    async with proctor.open_supervisor([agent_in(tmp_path)], intensity=9) as sup:
        assert (await sup.agent("talker").ask(ASKED)).text == SAID
        with pytest.raises(proctor.MaybeExecuted) as caught:
            await sup.agent("talker").ask(f"crash {ASKED}")
        assert (await sup.agent("talker").ask(ASKED)).ok
    first, second = told(caplog, "adapter_init")
    assert (first["agent"], first["kind"], first["incarnation"], second["incarnation"]) == (
        "talker",
        "scripted",
        1,
        2,
    )
    asked = told(caplog, "run_start")
    assert [record["prompt_chars"] for record in asked] == [len(ASKED), len(f"crash {ASKED}"), len(ASKED)]
    assert all(Path(str(record["executable"])).is_absolute() for record in (first, *asked))
    ends = told(caplog, "stream_end")
    assert [record["outcome"] for record in ends] == ["ok", "killed_by_system", "ok"]
    assert all(isinstance(seconds := record["seconds"], float) and 0 < seconds < 60 for record in ends)
    assert [record["outcome"] for record in told(caplog, "adapter_exit")] == ["killed_by_system", "stopped"]
    everything = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    for text in (ASKED, SAID):
        assert text not in everything
        assert text not in str(caught.value)


@pytest.mark.covers("R179", "R020")
async def test_a_run_without_a_tree_is_told_too(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, "proctor")
    assert (await ask(plan_of(agent_in(tmp_path)), ASKED)).ok
    [start], [end] = told(caplog, "run_start"), told(caplog, "stream_end")
    assert (start["prompt_chars"], end["outcome"]) == (len(ASKED), "ok")
    assert ASKED not in caplog.text


async def test_nothing_is_logged_below_the_level_that_is_wanted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.WARNING)
    assert (await ask(plan_of(agent_in(tmp_path)), ASKED)).ok
    assert [record.name for record in caplog.records if record.name.startswith("proctor")] == []


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", "") == event]


async def test_a_parked_agent_has_one_warning_with_the_limit_that_holds_it(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO, "proctor.agent")
    plan = spoken_plan(budget=proctor.Budget(0.4, 3600))
    async with proctor.open_supervisor([agent_spec("agent", plan, {})]) as sup:
        assert (await sup.agent("agent").ask(ASKED)).ok
        assert records(caplog, "parked") == []
        assert (await sup.agent("agent").ask(ASKED)).ok  # an hour later
    [facts], [record] = told(caplog, "parked"), records(caplog, "parked")
    assert (record.name, record.levelname) == ("proctor.agent", "WARNING")
    assert (facts["agent"], facts["kind"]) == ("agent", "claude")
    assert str(facts["why"]).startswith("agent has spent $0.5 of $0.4 in 3600 s; until ")
    assert record.getMessage() == f"agent: parked: {facts['why']}"
    assert ASKED not in caplog.text


async def test_a_stalled_agent_has_one_warning_with_the_evidence(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO, "proctor.agent")
    plan = spoken_plan(silence=20.0)
    async with proctor.open_supervisor([agent_spec("agent", plan, {})], intensity=1) as sup:
        with pytest.raises(proctor.MaybeExecuted):
            await sup.agent("agent").ask("hang")
        assert (await sup.agent("agent").ask("again")).ok
    [facts], [record] = told(caplog, "stalled"), records(caplog, "stalled")
    assert (record.name, record.levelname) == ("proctor.agent", "WARNING")
    assert (facts["agent"], facts["kind"]) == ("agent", "claude")
    assert "20 s" in str(facts["why"])
    assert record.getMessage() == f"agent: stalled: {facts['why']}"
    outcomes = [end["outcome"] for end in told(caplog, "stream_end")]
    assert outcomes == ["stalled", "ok"]
    assert [end["outcome"] for end in told(caplog, "adapter_exit")] == ["stalled", "stopped"]


async def test_an_interrupted_turn_has_its_own_end_in_the_log_and_no_warning(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO, "proctor.agent")
    async with proctor.open_supervisor([agent_spec("agent", spoken_plan(), {})]) as sup:
        agent = sup.agent("agent")
        async with agent.stream("hang") as turn:
            await trio.sleep(3)
            assert await agent.interrupt()
            assert (await turn.finish()).outcome == "interrupted"
        assert (await agent.ask("again")).ok
    first, second = told(caplog, "stream_end")
    assert (first["agent"], first["outcome"], first["incarnation"]) == ("agent", "interrupted", 1)
    assert first["seconds"] == pytest.approx(3, abs=0.1)
    assert (second["outcome"], second["incarnation"]) == ("ok", 1)
    assert records(caplog, "stream_end")[0].getMessage() == "agent: the turn ended after 3.00 s: interrupted"
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_program_that_set_no_logging_up_has_nothing_on_its_stderr(tmp_path: Path) -> None:
    script = write_script(tmp_path, [{"say": "begun"}, {"fault": "crash"}])
    program = f"import trio, proctor; trio.run(proctor.ask, proctor.scripted('a', {str(script)!r}), 'x')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
