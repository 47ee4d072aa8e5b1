"""Runs a program whose command and environment are in a file: `python -I -S EXEC_FILE FILE`.

For a CLI that takes servers only as arguments, which every user of the machine can read. The file is
`{"command": [...], "env": {...}}`; `env` is added to the inherited environment.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    command, environment = given["command"], {**os.environ, **given["env"]}
    try:
        # In the place of this program: no further process, and its signals and exit are the server's.
        os.execvpe(command[0], command, environment)
    except OSError as refusal:
        os.write(2, f"proctor exec_file: {command[0]}: {refusal.strerror}\n".encode(errors="replace"))
        os._exit(127)


if __name__ == "__main__":
    main()
