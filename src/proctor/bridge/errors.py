"""The errors of the bridge."""

from __future__ import annotations

from proctor.runtime.error_facts import Fault, ProgramMistake


class BridgeError(RuntimeError):
    """Something between Trio and the program around it went wrong."""

    retryable = False
    fault: Fault = "us"
    http_status = 500
    exit_status = 1
    remedy = "see the cause"


class BridgeClosed(BridgeError):
    """The Trio thread has ended, and with it all that it ran. Its failure, if it had one, is `__cause__`."""

    remedy = "open the supervisor, the pool or the sessions anew"


class WrongFace(ProgramMistake, BridgeError):
    """A call that would block, or that this event loop cannot run; the text names the face to use."""


class CallerGone(BridgeError):
    """A function of the caller (a tool, a hook, a policy) cannot run: its event loop has ended, or cancelled it."""

    remedy = "keep the event loop that opened the agents running as long as they live"
