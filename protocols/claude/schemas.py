"""The JSON schema of an answer, as Claude Code takes it: in the words of draft 7, and only those that it surely knows.

One word that its checker does not know (`format: date` in 2.1.197) makes it drop the schema without a word, and answer in
prose. So what it may not know is left out; that only allows more, and the host checks the answer by the whole schema.
What would allow less when something in it is left out (`not`, `if`, `oneOf`) is left out or written as `anyOf`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from proctor.protocols.dialect import record_schema

KEPT = frozenset(
    {
        *("type", "enum", "const", "required", "title", "description", "$ref"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Keywords that stay as they are."""

_ODD = re.compile(r"\(\?(?!:)|\\[^dDwWsSbBnrtfv.^$*+?()\[\]{}|/\\]")
"""What a pattern may hold that not every language of patterns reads."""


def loose_schema(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The form that Claude Code takes, None where it takes none: its root has to be a plain object."""
    return None if record_schema(schema) is None else _loose(schema)


def _loose(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    keywords = cast("Mapping[str, Any]", schema)
    made = {key: value for key, value in keywords.items() if key in KEPT}
    for key in ("properties", "$defs", "definitions"):
        if key in keywords:
            made[key] = {name: _loose(part) for name, part in keywords[key].items()}
    # Draft 7 has no `prefixItems`: `items` alone would hold for the places before it, too.
    if "items" in keywords and "prefixItems" not in keywords:
        made["items"] = _loose(keywords["items"])
    if "additionalProperties" in keywords and "patternProperties" not in keywords:
        made["additionalProperties"] = _loose(keywords["additionalProperties"])
    if _ODD.search(pattern := keywords.get("pattern", "")) is None and pattern:
        made["pattern"] = pattern
    # `oneOf` as `anyOf` allows more, never less; the host checks the answer by the whole schema.
    for key, word in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if key in keywords and word not in made:
            made[word] = [_loose(part) for part in keywords[key]]
    return made
