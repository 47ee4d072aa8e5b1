"""Access to JSON without a type of ours: `_meta`, `rawOutput`, the data of an error."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from proctor.protocols.lenient import Refusal


def value(raw: msgspec.Raw) -> Any:
    """The value, None where there is none or it cannot be decoded."""
    try:
        return msgspec.json.decode(raw) if bytes(raw) else None
    except Refusal:
        return None


def member(node: Any, *path: str) -> Any:
    """The member that the path leads to, None where it leads nowhere."""
    for name in path:
        if not isinstance(node, dict):
            return None
        node = cast("dict[str, Any]", node).get(name)
    return node
