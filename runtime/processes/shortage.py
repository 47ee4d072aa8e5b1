"""Shortage: what a machine can run out of, by the error number of the system, and what to do about it.

One table for all that judge a failed call: such a cause is no programming error and may pass, so it is worth another try
after a pause, and at once only makes it worse.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import cast

import attrs


@attrs.frozen
class Shortage:
    """`what` is missing, and the `remedy`, as words for a person."""

    what: str
    remedy: str


_DESCRIPTORS = "raise the limit of open files (ulimit -n) or run fewer at once"
_DISK = "free space there or name another folder"

SHORTAGES: Mapping[int, Shortage] = {
    errno.EMFILE: Shortage("file descriptors of this process", _DESCRIPTORS),
    errno.ENFILE: Shortage("file descriptors of the machine", "raise fs.file-max or run fewer at once"),
    errno.EAGAIN: Shortage(
        "processes or threads", "raise their limit (ulimit -u, pids.max) or run fewer at once"
    ),
    errno.ENOMEM: Shortage("memory", "free memory or run fewer at once"),
    errno.ENOBUFS: Shortage("memory of the kernel for sockets and pipes", "run fewer at once"),
    errno.ENOSPC: Shortage("space on the disk", _DISK),
    errno.EDQUOT: Shortage("the user's share of the disk", _DISK),
}
"""Error number → what has run out."""


def shortage_of(error: BaseException) -> Shortage | None:
    """The resource that had run out, by the first error of the system behind `error`; None when it was something else. Of a group all
    must have failed for a shortage: the first of them is what is named."""
    each: BaseException | None = error
    seen = set[int]()
    while each is not None and id(each) not in seen:
        if isinstance(each, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", each)
            found = [shortage_of(part) for part in group.exceptions]
            # one part that is no shortage would fail again however often it is tried
            return None if None in found else found[0]
        if isinstance(each, OSError) and each.errno is not None:
            return SHORTAGES.get(each.errno)
        seen.add(id(each))
        # our own errors keep the error of the system in `cause`, without chaining it
        each = each.__cause__ or getattr(each, "cause", None)
    return None


def remedy_of(error: OSError, otherwise: str) -> str:
    """The remedy for a failed call; `otherwise` where nothing had run out."""
    found = shortage_of(error)
    return otherwise if found is None else found.remedy
