"""The names of the scenarios, for those who must not import playwright: it is loaded in the browser's process only."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

_TREE = ast.parse(Path(__file__).with_name("scenarios.py").read_text(encoding="utf-8"))
SCENARIOS: Sequence[str] = [
    node.name
    for node in _TREE.body
    if isinstance(node, ast.FunctionDef) and [argument.arg for argument in node.args.args] == ["world"]
]
"""Each function of `scenarios` that takes a world, in their order."""
