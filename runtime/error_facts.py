"""Facts that every error of proctor carries as attributes: who must act, whether it may pass, and its statuses.

They are written on the error's class and nowhere else. HTTP gateways, the command line, retries and the reference page
read them from there.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import attrs

Fault = Literal["caller", "peer", "machine", "us"]
"""Who must act: the `caller` changes the request; the `peer` (a command line, its API, another agent) failed; the
`machine` lacks something or is set up wrongly, which its owner changes; `us` is a fault of proctor or of the program that
uses it."""


@runtime_checkable
class ErrorFacts(Protocol):
    """An error that carries its facts, or a record of them."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later with nothing changed. Whether something of it was carried out
        already is another question, which its delivery record answers."""
        ...

    @property
    def fault(self) -> Fault:
        """The party that must act."""
        ...

    @property
    def http_status(self) -> int:
        """The status of an HTTP response that reports it."""
        ...

    @property
    def exit_status(self) -> int:
        """The exit status of a command that ends with it."""
        ...

    @property
    def remedy(self) -> str:
        """The action that helps."""
        ...


class InvalidInput:
    """The facts of an error about a value that its caller gave."""

    fault: Fault = "caller"
    http_status = 422
    exit_status = 2


class ProgramMistake:
    """The facts of an error about the code of the program that uses proctor."""

    retryable = False
    fault: Fault = "us"
    http_status = 500
    exit_status = 70
    remedy = "mend the program that uses it: this is a mistake in its code"


@attrs.frozen(kw_only=True)
class Facts:
    """The facts of an error that has no class of ours."""

    fault: Fault
    http_status: int
    remedy: str
    retryable: bool = False
    exit_status: int = 1
