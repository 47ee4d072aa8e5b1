"""The scripted agent: a program of ours that speaks the wire of any CLI we know, and what starts it.

The program runs without this file: it is started by the path of `cli.py`, for which the package is an empty one.
"""

from proctor.actors.scripted.launch import (
    PROGRAM,
    check_script,
    scripted_dialect,
    scripted_executable,
)
from proctor.actors.scripted.script import ScriptError

__all__ = ["PROGRAM", "ScriptError", "check_script", "scripted_dialect", "scripted_executable"]
