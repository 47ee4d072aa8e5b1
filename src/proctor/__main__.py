"""`python -m proctor` is the command `proctor`."""

from __future__ import annotations

from proctor.cli import main

if __name__ == "__main__":
    main()
