"""Actors and their messages: mailboxes, addresses, calls, streams, monitors, links, names."""

from __future__ import annotations

from proctor.runtime.messaging.actor import (
    CONTEXT,
    IDLE,
    IGNORE,
    NO_REPLY,
    Actor,
    ActorContext,
    Continue,
    Ignore,
    Reply,
    Stop,
    current_actor,
)
from proctor.runtime.messaging.actor_loop import Ended, live, raise_one_of
from proctor.runtime.messaging.deadlines import left, until
from proctor.runtime.messaging.endpoint import OWN, Endpoint, Message, Stoppable
from proctor.runtime.messaging.lateness import seconds_late, wait_in_time
from proctor.runtime.messaging.links import link, unlink
from proctor.runtime.messaging.mailbox import Mailbox
from proctor.runtime.messaging.messages import Call, Info, reply, reply_error
from proctor.runtime.messaging.monitors import Monitor, watch
from proctor.runtime.messaging.names import Name
from proctor.runtime.messaging.notices import Down, ExitSignal
from proctor.runtime.messaging.one_shot import OneShotEvent
from proctor.runtime.messaging.persistent_state import Kept
from proctor.runtime.messaging.refs import Address, Ref, open_ref
from proctor.runtime.messaging.registry import Registry
from proctor.runtime.messaging.requests import Request, Requests
from proctor.runtime.messaging.streams import Sink, Stream
from proctor.runtime.messaging.supervisor_handle import (
    ChildCounts,
    ChildInfo,
    ChildState,
    SupervisorHandle,
    TreeNode,
)
from proctor.runtime.messaging.timers import Timers
from proctor.runtime.messaging.tree_context import TreeContext

__all__ = [
    "CONTEXT",
    "IDLE",
    "IGNORE",
    "NO_REPLY",
    "OWN",
    "Actor",
    "ActorContext",
    "Address",
    "Call",
    "ChildCounts",
    "ChildInfo",
    "ChildState",
    "Continue",
    "Down",
    "Ended",
    "Endpoint",
    "ExitSignal",
    "Ignore",
    "Info",
    "Kept",
    "Mailbox",
    "Message",
    "Monitor",
    "Name",
    "OneShotEvent",
    "Ref",
    "Registry",
    "Reply",
    "Request",
    "Requests",
    "Sink",
    "Stop",
    "Stoppable",
    "Stream",
    "SupervisorHandle",
    "Timers",
    "TreeContext",
    "TreeNode",
    "current_actor",
    "left",
    "link",
    "live",
    "open_ref",
    "raise_one_of",
    "reply",
    "reply_error",
    "seconds_late",
    "unlink",
    "until",
    "wait_in_time",
    "watch",
]
