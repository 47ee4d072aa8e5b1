"""What a recording says of its run in short: which agent it was, how it ended, what it cost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import attrs
import msgspec

from proctor.actors.outcomes import ENDINGS, Outcome
from proctor.actors.recording.recording import EVENTS, RUN_NAME
from proctor.actors.recording.retention import changed_at, is_ended
from proctor.actors.recording.segments import segments_of
from proctor.protocols import vocabulary as v

_SUMMED_UP = tuple(
    f'{{"type":"{tag}"'.encode() for tag in ("started", "turn_started", "turn_ended", "exited")
)
_SENT = b'"code":"sent"'


class _Meta(msgspec.Struct):
    cli: str = ""
    argv: list[str] = []


@attrs.frozen
class Charge:
    """What a CLI has reported of the cost of a turn, in dollars; None: nothing. `at`: when its prompt was sent, in Unix seconds."""

    at: float
    model: str | None
    cost_usd: float | None


@attrs.frozen(kw_only=True)
class RunSummary:
    """One recorded run in the folder `path`. `id` is the end of its name. Times are in Unix seconds; `changed` is that of the last event.
    `outcome` is that of its last turn, None where none has ended, and `text` that turn's answer; `is_in_turn` says that another has begun
    since. `argv` is the command line."""

    id: str
    path: Path
    agent: str
    kind: str
    argv: tuple[str, ...]
    begun: float
    changed: float
    is_running: bool
    session_id: str | None
    cwd: str | None
    model: str | None
    outcome: Outcome | None
    text: str
    is_in_turn: bool
    charges: tuple[Charge, ...]

    @property
    def cost_usd(self) -> float | None:
        """The sum of what was reported, None where nothing was."""
        known = [charge.cost_usd for charge in self.charges if charge.cost_usd is not None]
        return sum(known) if known else None


def run_folders(root: Path) -> list[Path]:
    """The folders of recorded runs below `root`, the newest first; none where `root` is not there."""
    try:
        names = [name for name in os.listdir(root) if RUN_NAME.fullmatch(name)]
    except FileNotFoundError:
        return []
    return [root / name for name in sorted(names, reverse=True)]


def agent_of(folder: Path) -> str:
    """The agent of the run in `folder`, by its name alone."""
    named = RUN_NAME.fullmatch(folder.name)
    return "" if named is None else named["agent"]


def id_of(folder: Path) -> str:
    """The id of the run in `folder`, by its name alone."""
    named = RUN_NAME.fullmatch(folder.name)
    return "" if named is None else named["id"]


def recorded_events(folder: Path, *, in_short: bool = False, since: int = 0) -> Iterator[v.AnyEvent]:
    """The events of a recording in their order, up to one in whose midst its host has died; `in_short`: only those that a
    summary needs. The first `since` of them are passed over. Raises OSError."""
    decode = msgspec.json.Decoder(v.AnyEvent).decode
    for line in islice(_lines(folder), since, None):
        if in_short and not line.startswith(_SUMMED_UP) and _SENT not in line[:80]:
            continue
        try:
            yield decode(line)
        except msgspec.DecodeError:
            return


def _lines(folder: Path) -> Iterator[bytes]:
    for path in [*(segment.path for segment in segments_of(folder / EVENTS)), folder / EVENTS]:
        with open(path, "rb") as lines:
            yield from lines


def summary_of(folder: Path) -> RunSummary | None:
    """The summary of the run in `folder`; None where it is none, or is gone."""
    named = RUN_NAME.fullmatch(folder.name)
    if named is None:
        return None
    meta = _meta_of(folder)
    began = at = time.mktime(time.strptime(named["begun"], "%Y%m%d-%H%M%S"))
    session_id = cwd = model = None
    outcome: Outcome | None = None
    text, is_in_turn, charges = "", False, list[Charge]()
    with suppress(OSError):
        for event in recorded_events(folder, in_short=True):
            match event:
                case v.Notice():
                    at = event.data.get("at", at)
                case v.Started():
                    session_id, cwd, model = event.session_id, event.cwd or cwd, event.model or model
                case v.TurnStarted():
                    is_in_turn = True
                case v.TurnEnded():
                    is_in_turn = False
                    outcome, text = ENDINGS[event.ending], event.text or event.error or ""
                    charges.append(Charge(at, event.model or model, event.cost_usd))
                case v.Exited():
                    is_in_turn = False
                    charges += [Charge(at, model, event.cost_usd)] if event.cost_usd is not None else []
                case _:
                    pass
    try:
        is_running, changed = not is_ended(folder), changed_at(folder)
    except OSError:  # removed meanwhile, or not a run
        return None
    return RunSummary(
        id=named["id"],
        path=folder,
        agent=named["agent"],
        kind=meta.cli,
        argv=tuple(meta.argv),
        begun=began,
        changed=changed,
        is_running=is_running,
        session_id=session_id,
        cwd=cwd,
        model=model,
        outcome=outcome,
        text=text,
        is_in_turn=is_in_turn,
        charges=tuple(charges),
    )


def _meta_of(folder: Path) -> _Meta:
    newest = max((int(one.name) for one in folder.iterdir() if one.name.isdigit()), default=None)
    if newest is not None:
        with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode((folder / str(newest) / "meta.json").read_bytes(), type=_Meta)
    return _Meta()
