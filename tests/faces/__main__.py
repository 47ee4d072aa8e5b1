"""`python -m tests.faces`: write `proctor.aio`, `proctor.sync` and the page that compares them."""

from __future__ import annotations

from tests.faces.write import ROOT, write

if __name__ == "__main__":
    write(ROOT)
