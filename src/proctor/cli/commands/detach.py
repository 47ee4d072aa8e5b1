"""`proctor up --detach`: starts `proctor up` in the background, and returns when the verbs reach it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from proctor.actors.client.sockets import Host, running_hosts
from proctor.actors.errors import BadOption
from proctor.actors.fleet.fleet import load_fleet
from proctor.cli.control_client import Client, ControlError
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.fleet_run import store_path
from proctor.cli.ui.output import Output
from proctor.cli.usage_errors import missing_of
from proctor.runtime.processes import make_directory, open_private

PATIENCE = 60.0
"""Seconds in which the fleet must answer."""
_POLL = 0.05
_LOG_LIMIT = 2**20
"""Bytes of earlier output that a start keeps."""


def detach_command(fleet: str, words: Sequence[str]) -> int:
    """Start the fleet of this file in the background, `proctor up` with `words`, and return the exit status."""
    return run_report(partial(_detach, fleet, words))


async def _detach(file: str, words: Sequence[str], out: Output) -> int:
    if missing := missing_of("http"):
        raise BadOption(missing)
    name = load_fleet(Path(file)).name
    log = store_path(name, Path(file)).with_suffix(".log")
    process, begin = await trio.to_thread.run_sync(_start, log, ("up", *words, "--", file))
    try:
        host = await _reached(process)
    except trio.Cancelled:
        process.terminate()  # Ctrl-C before anybody knows that it runs
        raise
    if host is None:
        await Output(2).note(await trio.to_thread.run_sync(_written_since, log, begin))
        return FAILED if process.returncode is None else process.returncode
    text = (
        f"{host.fleet} runs in process {host.pid}; its output: {log}\n"
        f"see proctor ps {host.fleet}; stop it with proctor down {host.fleet}\n"
    )
    await out.write(text.encode("utf-8", "replace"))
    return OK


def _start(log: Path, words: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and where its output begins in `log`."""
    make_directory(log.parent, parents=True, exist_ok=True)
    with open(open_private(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW), "ab") as output:
        begin = output.tell()
        if begin > _LOG_LIMIT:
            os.truncate(log, 0)  # one that still runs writes on at the end, wherever that is
            begin = 0
        # -P: a `proctor.py` in this folder is not ours
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "proctor", *words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # a session of its own: neither Ctrl-C nor the end of this terminal reaches it
            start_new_session=True,
        )
    return process, begin


async def _reached(process: subprocess.Popen[bytes]) -> Host | None:
    """The fleet of this process when it answers; None when the process has ended, or does not answer in time."""
    with trio.move_on_after(PATIENCE):
        while process.poll() is None:
            if (host := await trio.to_thread.run_sync(_answering, process.pid)) is not None:
                return host
            await trio.sleep(_POLL)
    return None


def _answering(pid: int) -> Host | None:
    for host in running_hosts():
        if host.pid == pid:
            try:
                Client(host).get("/healthz")
            except ControlError:
                return None
            return host
    return None


def _written_since(log: Path, begin: int) -> bytes:
    with open(log, "rb") as output:
        output.seek(begin)
        return output.read(_LOG_LIMIT)
