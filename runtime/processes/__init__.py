"""Operating system processes: spawned, watched, stopped, and swept up after a crash of the host."""

from __future__ import annotations

from proctor.runtime.processes.condition import Condition, GuardState, PipeState, ProcessState
from proctor.runtime.processes.ledger import (
    Entry,
    Ledger,
    Swept,
    current_ledger,
    make_folder,
    open_ledger,
    renew_folder,
)
from proctor.runtime.processes.notify import Notify
from proctor.runtime.processes.orphans import Orphan, find_marked
from proctor.runtime.processes.private import make_directory, make_temporary_directory, open_private
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.process_errors import (
    Context,
    CwdMissing,
    NotExecutable,
    NotFound,
    PipeFailed,
    PortTaken,
    ProcessError,
    ProcessGone,
    SpawnFailed,
    StdinClosed,
    spawn_refused,
    stdin_refused,
)
from proctor.runtime.processes.procfs import (
    Sample,
    children_of,
    last_pid,
    marker_of,
    pids,
    resident_of,
    sample_tree,
    stat_of,
)
from proctor.runtime.processes.readiness import File, Output, OutputName, Port, Readiness, Watch
from proctor.runtime.processes.shortage import shortage_of
from proctor.runtime.processes.stopping import CONTINUE, DEFAULT_LADDER, Step, fitted, run_ladder
from proctor.runtime.processes.tags import (
    is_own_directory,
    is_tagged,
    remove_tree,
    restore_directory,
    tag_folder,
    tag_of,
    write_all,
)

__all__ = [
    "CONTINUE",
    "DEFAULT_LADDER",
    "Command",
    "Condition",
    "Context",
    "CwdMissing",
    "Entry",
    "File",
    "GuardState",
    "Ledger",
    "NotExecutable",
    "NotFound",
    "Notify",
    "Orphan",
    "Output",
    "OutputName",
    "PipeFailed",
    "PipeState",
    "Port",
    "PortTaken",
    "Process",
    "ProcessError",
    "ProcessGone",
    "ProcessState",
    "Readiness",
    "Sample",
    "SpawnFailed",
    "StdinClosed",
    "Step",
    "Swept",
    "Watch",
    "children_of",
    "current_ledger",
    "find_marked",
    "fitted",
    "is_own_directory",
    "is_tagged",
    "last_pid",
    "make_directory",
    "make_folder",
    "make_temporary_directory",
    "marker_of",
    "open_ledger",
    "open_private",
    "open_process",
    "pids",
    "remove_tree",
    "renew_folder",
    "resident_of",
    "restore_directory",
    "run_ladder",
    "sample_tree",
    "shortage_of",
    "spawn_refused",
    "stat_of",
    "stdin_refused",
    "tag_folder",
    "tag_of",
    "write_all",
]
