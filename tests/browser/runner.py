"""A process of its own for the browser: `python -m tests.browser.runner EXECUTABLE FOLDER`.

It reads the names of scenarios from stdin, a line each, and writes `{"problem": null or a traceback}` for each to stdout. So
no worker of the tests has playwright's event loop, and killing one process group ends all there is.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from tests.browser import scenarios
from tests.browser.browser import opened


def main(executable: str, folder: str) -> None:
    """Serve until stdin ends."""
    with opened(Path(executable), Path(folder)) as new_world:
        for line in sys.stdin:
            world, problem = new_world(), None
            try:
                getattr(scenarios, line.strip())(world)
                assert not world.complaints, world.complaints
            except Exception:  # noqa: BLE001  # the test raises it
                problem = traceback.format_exc()
            sys.stdout.write(json.dumps({"problem": problem}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
