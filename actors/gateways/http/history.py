"""What a fleet was asked and what was recorded of it: the requests of its store and of its queues, and the past runs of its agents.

What is on disk is read in a thread: it may be much, and its disk slow.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import trio

from proctor.actors.agent.agent_state import AgentState
from proctor.actors.agent.handle import Agent
from proctor.actors.agent.request import Request
from proctor.actors.agent.stored_requests import StoredRequests
from proctor.actors.gateways.http.schemas import EventList, RequestRecord, RunRecord, record_of
from proctor.actors.recording.run_summary import (
    RunSummary,
    agent_of,
    id_of,
    recorded_events,
    run_folders,
    summary_of,
)
from proctor.actors.store.records import StoredRequest
from proctor.protocols.vocabulary import AnyEvent

PROMPT = 200
"""Characters of a prompt that a record has."""
PAGE = 1000
"""Events of a run in one response."""


async def requests_of(
    agents: Mapping[str, Agent], stored: StoredRequests | None, agent: str | None
) -> list[RequestRecord]:
    """The requests of these agents, or of the one named `agent`, the newest first."""
    kept: Sequence[StoredRequest] = () if stored is None else await stored.all(agent)
    live = {
        pending.ticket: (state, pending)
        for state in _states(agents, agent)
        for pending in (*([] if state.current is None else [state.current]), *state.waiting)
    }
    records = [_stored(request, live.get(request.id)) for request in kept if request.agent in agents]
    known = {request.id for request in kept}
    records += [_queued(*one) for ticket, one in live.items() if ticket not in known]
    return sorted(records, key=lambda record: record.accepted, reverse=True)


def _states(agents: Mapping[str, Agent], named: str | None) -> Iterator[AgentState]:
    for name, agent in agents.items():
        if named in (None, name) and (state := agent.kept_state()) is not None:
            yield state


def _stored(request: StoredRequest, live: tuple[AgentState, Request] | None) -> RequestRecord:
    sent, end = request.sent, request.end
    is_running = live is not None and _is_running(*live)
    answer = None if end is None else end.answer
    return RequestRecord(
        id=request.id,
        key=request.key,
        agent=request.agent,
        prompt=request.prompt[:PROMPT],
        state="ended" if end is not None else "running" if is_running else "waiting",
        accepted=request.accepted,
        sent=None if sent is None else sent.at,
        ended=None if end is None else end.ended,
        outcome=None if end is None else end.outcome,
        cost_usd=None if end is None else end.cost_usd,
        session_id=answer.session_id if answer is not None else None if sent is None else sent.session_id,
    )


def _queued(state: AgentState, pending: Request) -> RequestRecord:
    return RequestRecord(
        id=pending.ticket,
        agent=state.status.name,
        prompt=pending.text[:PROMPT],
        state="running" if _is_running(state, pending) else "waiting",
        accepted=time.time() - (trio.current_time() - pending.asked),
        session_id=state.session_id,
    )


def _is_running(state: AgentState, pending: Request) -> bool:
    return pending is state.current and pending.sent and not pending.parked


# -- past runs


def _roots(agents: Iterable[Agent]) -> set[Path]:
    """The folders that hold the recordings of these agents."""
    states = (agent.kept_state() for agent in agents)
    folders = {None if state is None else state.plan.workplace.record for state in states}
    return {folder for folder in folders if folder is not None}


async def runs_of(agents: Mapping[str, Agent], agent: str | None, limit: int) -> list[RunRecord]:
    """The recorded runs of these agents, or of the one named `agent`: at most `limit`, the newest first."""
    names = {name for name in agents if agent in (None, name)}
    roots = _roots(agents.values())

    def read() -> list[RunRecord]:
        folders = [folder for root in roots for folder in run_folders(root) if agent_of(folder) in names]
        newest = sorted(folders, key=lambda folder: folder.name, reverse=True)
        summaries = (summary for folder in newest if (summary := summary_of(folder)) is not None)
        return [run_record(summary) for summary in itertools.islice(summaries, limit)]

    return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


async def run_of(agents: Mapping[str, Agent], id: str) -> RunSummary | None:
    """The recorded run of this id; None when these agents have none."""
    roots = _roots(agents.values())

    def read() -> RunSummary | None:
        folder = _run_folder(agents, roots, id)
        return None if folder is None else summary_of(folder)

    return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


async def run_events(agents: Mapping[str, Agent], id: str, since: int) -> EventList | None:
    """The events of that run from the position `since` on, at most `PAGE`; None when there is no such run, or no more."""
    roots = _roots(agents.values())

    def read() -> list[AnyEvent] | None:
        # not by its summary, for which all of the run is read: a run has many pages
        if (folder := _run_folder(agents, roots, id)) is None:
            return None
        with suppress(FileNotFoundError):  # removed meanwhile
            return list(itertools.islice(recorded_events(folder, since=since), PAGE + 1))
        return None

    events = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    if events is None:
        return None
    more = since + PAGE if len(events) > PAGE else None
    return EventList(since=since, next=more, events=tuple(events[:PAGE]))


def _run_folder(agents: Mapping[str, Agent], roots: Iterable[Path], id: str) -> Path | None:
    folders = (folder for root in roots for folder in run_folders(root) if agent_of(folder) in agents)
    return next((folder for folder in folders if id_of(folder) == id), None)


def run_record(summary: RunSummary) -> RunRecord:
    """The record of a run."""
    return record_of(RunRecord, summary, path=str(summary.path), turns=len(summary.charges))
