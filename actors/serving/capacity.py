"""Capacity of this machine: the default size of a pool, how many processes start at once, and how many clients may connect.

A command line holds 200 to 500 MB while it works and mostly waits for its model; starting one takes a core for about a second.
The limit of open files is shared: half is for the agents, half for the clients of a server.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

from proctor.actors.process.start_slots import usable_cores

MOST = 10
"""Slots of a pool by default, if the machine is large enough."""
EACH = 500 * 2**20
"""Bytes that one agent is expected to hold."""
SHARE = 0.5
"""The share of the memory for all agents."""
PER_CORE = 4
CONNECTIONS = 1000
"""Connections of clients to one server, if the limit of open files permits them."""
FILES = 65536
"""The limit to which the number of open files is raised: agents inherit it, and some programs close every number below it."""
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def default_limit(memory: int | None = None, cores: int | None = None) -> int:
    """The slots of a pool on a machine with this memory (bytes) and these cores, by default this machine. At least 1."""
    memory = total_memory() if memory is None else memory
    fitting = int(memory * SHARE / EACH)
    return max(1, min(MOST, fitting, PER_CORE * (usable_cores() if cores is None else cores)))


def total_memory(limit: Path = _LIMIT) -> int:
    """Bytes of memory of this machine, or of its container if that has less: `limit` is a file with a number, or with `max`."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    try:
        return min(machine, int(limit.read_text()))
    except (OSError, ValueError):
        # no cgroup v2 here, or its limit is the word `max`
        return machine


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one, at most `FILES`: the usual 1024 is too small for a server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connection_limit(files: int | None = None) -> int:
    """The number of clients for a limit of open files, by default that of this process. At least 1.

    Half of the files stay for the agents: each has pipes, a recording and a log.
    """
    if files is None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, files // 2))
