"""Each call to the system fails once, at every point of a process's life: a named cause, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import pytest
import trio

from proctor.runtime.exits import Killed, Normal, Shutdown
from proctor.runtime.process import Command, open_process
from proctor.runtime.process_errors import ProcessError
from proctor.runtime.stopping import Step
from tests.runtime.programs import ENV, everything
from tests.runtime.syscall_faults import FAILURES, Failure, Trial, trials

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors by /proc")

SOON = (Step("close_stdin", 0.3), Step("terminate", 0.3), Step("kill", 0.3))
NOW = (Step("terminate", 0.3), Step("kill", 0.3))
CAT = Command(("cat",), ENV)


async def talk() -> None:
    async with open_process(CAT, ladder=SOON) as process:
        await process.send(b"hello\n")
        process.close_stdin()
        assert await everything(process) == b"hello\n"
    assert process.exit == Normal()


async def talk_much() -> None:
    got = bytearray()

    def keep(data: bytes) -> None:
        got.extend(data)

    async with open_process(CAT, ladder=SOON, on_stdout=keep) as process:
        await process.send(bytes(200_000))
        process.close_stdin()
        await process.wait()
    assert (process.exit, len(got)) == (Normal(), 200_000)


async def stop() -> None:
    command = Command(("sleep", "60"), ENV, stdin="null")
    async with open_process(command, ladder=NOW) as process:
        pass
    assert process.exit in (Shutdown(), Killed())


async def stop_without_pipes() -> None:
    command = Command(("sleep", "60"), ENV, stdin="null", stdout="null", stderr="null")
    async with open_process(command, ladder=NOW) as process, trio.open_nursery() as nursery:
        nursery.start_soon(process.wait)
        nursery.start_soon(process.wait)
        await trio.lowlevel.checkpoint()
        process.begin_stop()
    assert process.exit in (Shutdown(), Killed())


async def talk_guarded() -> None:
    async with open_process(CAT, ladder=SOON, guard=True) as process:
        await process.send(b"hello\n")
        process.close_stdin()
        assert await everything(process) == b"hello\n"
    assert process.exit == Normal()


SCENARIOS: tuple[Callable[[], Awaitable[None]], ...] = (
    talk,
    talk_much,
    stop,
    stop_without_pipes,
    talk_guarded,
)


def complaint(trial: Trial, failure: Failure) -> str | None:
    """What is wrong with the end of a trial."""
    where = f"call {trial.nth}, {trial.call}"
    if trial.left:
        return f"{where}: left {', '.join(trial.left)} behind"
    error = trial.raised
    if error is None:
        return None
    if failure == "short write":
        return f"{where}: {error!r}"
    cause = getattr(error, "cause", None)
    reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "no cause"
    if not isinstance(error, ProcessError) or reason not in str(error) or "; " not in str(error):
        return f"{where}: {type(error).__name__} {error} by {cause!r}"
    return None


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_call_of_the_system_that_fails_is_named_and_leaves_nothing(
    scenario: Callable[[], Awaitable[None]], failure: Failure
) -> None:
    ended = await trials(scenario, failure, lambda: ())
    assert [wrong for trial in ended if (wrong := complaint(trial, failure))] == []
    assert ended or failure == "short write"
    await scenario()
