"""The command as a user whom the system does not know: no entry in the table of users, and perhaps no home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.proctor.command import PATIENCE, PROCTOR, ROOT, Ended

UID = 54321

# A capability to read stays, because the interpreter and its packages may lie in root's own folder; none to write.
_TURN_INTO = f"""
import ctypes, os, sys
c = ctypes.CDLL(None, use_errno=True)
c.prctl(8, 1, 0, 0, 0)
os.setgroups([]); os.setresgid({UID}, {UID}, {UID}); os.setresuid({UID}, {UID}, {UID})
mask = 1 << 2
failed = c.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0))
failed = failed or c.prctl(47, 2, 2, 0, 0)
if failed: sys.exit("the capability to read cannot be kept")
os.execve(sys.argv[1], sys.argv[1:], os.environ)
"""


def as_unknown_user(*words: str, tmp: Path, home: Path | None, **more: str) -> Ended:
    """Run the command to its end, without HOME or with this one. Who is not root stays who he is, with a home of no name."""
    tmp.mkdir(exist_ok=True)
    tmp.chmod(0o777)
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp), "PYTHONPATH": str(ROOT / "src"), **more}
    command = [*PROCTOR, *words]
    if os.getuid() == 0:
        command = [sys.executable, "-c", _TURN_INTO, *command]
    elif home is None:
        env["HOME"] = ""
    if home is not None:
        env["HOME"] = str(home)
    done = subprocess.run(
        command, input=b"", capture_output=True, env=env, timeout=PATIENCE, check=False, cwd=tmp
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
