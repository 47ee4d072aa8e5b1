"""Control requests: what is sent to a CLI beside prompts. Each is written, or refused with a reason before anything is written."""

from __future__ import annotations

import attrs

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.messages import ControlResult
from proctor.actors.agent.receipts import refusal_reason
from proctor.actors.errors import NotExecuted
from proctor.actors.process.agent_process import AgentProcess
from proctor.protocols.dialect import parse_version
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest


async def send_control(request: AnyRequest, state: AgentState, process: AgentProcess | None) -> ControlResult:
    """Write the request to the process, if one is there and it makes sense now."""
    if process is None or process.stopper != "nobody":
        return ControlResult(
            state.log, state.log.end, refused=f"no process is running: {state.status.summary}"
        )
    result = _check_control(request, state, process)
    if result.refused is not None:
        return result
    try:
        await process.send(request)
    except (Misuse, NotExecuted) as error:
        # The process has ended, or its turn, between the check and the write.
        return attrs.evolve(result, refused=str(error))
    return result


def _check_control(request: AnyRequest, state: AgentState, process: AgentProcess) -> ControlResult:
    dialect, memo = process.plan.dialect, process.conversation.memo
    version = parse_version(memo.version)
    refused = refusal_reason(request, dialect, version, state.status, running=process.working)
    return ControlResult(state.log, state.log.end, memo.turn, dialect.can("queue", version), refused)
