"""The scripted agent: a program that speaks the wire of Claude Code 2.1.330 without a model behind it.

    python -I -S cli.py --script FILE [--fault SPEC]... [--speed N] [the flags of the real CLI]

FILE is a script (NDJSON) or a recorded run. docs/reference/scripts.md tells the format and the faults. A mistake in either
ends the program with exit 2 and one line on stderr.

This file is only the door. It runs under -I and -S, where neither site-packages nor the package exist, and must answer
within 20 ms; so it names the folders itself, without running the package's own start (which imports trio), and leaves
the rest to modules whose bytecode Python keeps.
"""

from __future__ import annotations

import os
import sys


def name_folders() -> None:
    """Let `proctor.actors.scripted` be imported from this folder, as empty packages, unless it is imported already."""
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in ("proctor.actors.scripted", "proctor.actors", "proctor"):
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules.setdefault(name, package)
        folder = os.path.dirname(folder)


def main(arguments: list[str] | None = None) -> int:
    """Play the script that the arguments name, those of the command line if none are given. The exit status."""
    name_folders()
    from proctor.actors.scripted import program

    return program.main(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    os.umask(0o077)  # what it keeps of a session is its user's alone, whatever the umask that it was given
    sys.exit(main())
