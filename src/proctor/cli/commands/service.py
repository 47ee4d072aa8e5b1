"""`proctor service`: makes a fleet a service of the user's systemd, which starts it with the machine and restarts it when it dies.

Writes one unit file and says what to run; it runs nothing itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from proctor.actors.disk import replace_file
from proctor.actors.errors import BadOption
from proctor.actors.fleet.fleet import load_fleet
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import OK
from proctor.cli.ui.output import Output
from proctor.runtime.processes import make_directory

STOP_SECONDS = 60
"""Seconds that systemd gives a fleet to stop in order, and its event loop to show that it turns."""
UNIT = """\
[Unit]
Description=proctor fleet {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload={reload}
WorkingDirectory={folder}
Environment={path}
# not on-failure: a fleet that ended by itself with a failed prompt would ask all of them again
Restart=on-abnormal
RestartSec=5
# the first signal goes to proctor alone, which stops its agents in order
KillMode=mixed
TimeoutStopSec={stop}
WatchdogSec={stop}

[Install]
WantedBy=default.target
"""


def install_command(fleet: str, *, dry_run: bool) -> int:
    """Write the unit of a fleet, or only print it, and return the exit status."""
    return run_report(partial(_report, partial(_install, Path(fleet).absolute(), dry_run)))


def remove_command(fleet: str) -> int:
    """Remove the unit of a fleet and return the exit status."""
    return run_report(partial(_report, partial(_remove, Path(fleet))))


async def _report(work: Callable[[], str], out: Output) -> int:
    await out.write(work().encode("utf-8", "replace"))
    return OK


def _install(file: Path, dry_run: bool) -> str:
    name = load_fleet(file).name
    path, unit = _unit_path(name), unit_of(name, file)
    if dry_run:
        return f"# {path}\n{unit}"
    try:
        make_directory(path.parent, parents=True, exist_ok=True)
        replace_file(path, unit.encode())
    except OSError as error:
        raise BadOption(f"{path} cannot be written: {error.strerror}; --dry-run prints it") from error
    return (
        f"wrote {path}; now run\n"
        f"  systemctl --user daemon-reload && systemctl --user enable --now {path.name}\n"
        "  loginctl enable-linger    # once: services run also while you are logged out\n"
        f"its output: journalctl --user -u {path.name}\n"
    )


def _remove(file: Path) -> str:
    path = _unit_path(load_fleet(file).name)
    try:
        path.unlink()
    except FileNotFoundError:
        raise BadOption(f"{path} is not there: this fleet is no service") from None
    except OSError as error:
        raise BadOption(f"{path} cannot be removed: {error.strerror}") from error
    return (
        f"removed {path}; now run\n"
        f"  systemctl --user disable --now {path.name}; systemctl --user daemon-reload\n"
    )


def unit_of(name: str, file: Path) -> str:
    """The unit of the fleet in `file`, an absolute path."""
    # -P: a `proctor.py` in the folder of the fleet is not ours
    program = (sys.executable, "-P", "-m", "proctor")
    return UNIT.format(
        name=_plain(name),
        command=_command(*program, "up", str(file)),
        reload=_command(*program, "reload", name),
        folder=_plain(str(file.parent)),
        # systemd's own has none of the folders in which command lines are installed
        path=_quoted(f"PATH={os.environ.get('PATH', os.defpath)}"),
        stop=STOP_SECONDS,
    )


def _command(*words: str) -> str:
    # in a command `$` begins a variable
    return " ".join(_quoted(word).replace("$", "$$") for word in words)


def _unit_path(name: str) -> Path:
    configuration = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    # the characters that the name of a unit may have
    return Path(configuration, "systemd", "user", f"proctor-{re.sub(r'[^A-Za-z0-9:_.-]', '_', name)}.service")


def _plain(text: str) -> str:
    """A value that is the rest of its line. Raises `BadOption` for one that cannot be."""
    if "\n" in text:
        raise BadOption(f"{text!r} cannot be in a unit of systemd: it has a line break")
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word of a list, as systemd splits one: in quotes, without specifiers."""
    escaped = _plain(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
