"""Coding-agent command lines as supervised actors.

The names a user needs; each is documented where it is defined. `proctor.runtime` is the supervision library by
itself, `proctor.protocols` the wire formats, `proctor.actors` the agents.
"""

from pathlib import Path

if not (Path(__file__).parent / "runtime").is_dir():  # a checkout that lost its links
    __path__.append(str(Path(__file__).parents[2]))

from proctor.actors.errors import (
    AgentError,
    AskTimeout,
    BadOption,
    GreetingTimeout,
    MaybeExecuted,
    NotExecutable,
    NotExecuted,
    NotInstalled,
    RecordingFailed,
    StartRefused,
    VersionCheckFailed,
)
from proctor.actors.handle import Agent, Turn
from proctor.actors.outcomes import Answer
from proctor.actors.permissions import Rule, Verdict
from proctor.actors.runs import Run
from proctor.actors.states import Status
from proctor.actors.trees import SpecOptions, Supervisor, ask, claude, open_supervisor, scripted, stream
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Exited,
    Garbled,
    LimitReached,
    Misplaced,
    Notice,
    Retrying,
    Started,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
    Usage,
)
from proctor.runtime import (
    Actor,
    ActorExited,
    CallTimeout,
    ChildSpec,
    Crash,
    Exit,
    ExitStatus,
    InvalidSpec,
    Killed,
    MaxRestartsExceeded,
    NoProc,
    Normal,
    Ref,
    Shutdown,
    StartError,
    check_childspecs,
    run,
    supervisor_spec,
)
