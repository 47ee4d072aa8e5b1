"""`python -m tests.faces`: write `proctor.aio`, `proctor.sync` and the page that compares them."""

from __future__ import annotations

from tests.faces.page import PAGE, page
from tests.faces.write import ROOT, write

if __name__ == "__main__":
    write(ROOT)
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
