"""The page docs/reference/faces.md: every public name in three columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.faces import columns
from tests.faces.columns import CLASSES, Proxied
from tests.faces.source import declared_of, function_of, members_of
from tests.faces.write import NAMES, kind_of

PAGE = "docs/reference/faces.md"

HEAD = """# Three faces

Written by `python -m tests.faces` from the code. Every public name, as Trio (`proctor`), asyncio (`proctor.aio`) and plain code
(`proctor.sync`) have it: awaited, called, a block (`async with`, `with`), iterated over, or an attribute. How to use the last two:
[in an asyncio program](../guides/use-with-asyncio.md), [in a plain script](../guides/use-in-scripts.md).

What is awaited in asyncio and called in Trio runs in the Trio thread, which a call that blocks would hold up.
"""

OTHERWISE = {
    "Ref.monitor": "`with`",
    "Name.monitor": "`with`",
    "Supervisor.events": "`with`",
    "DynamicSupervisor.events": "`with`",
    "Pool.serve": "`nursery.start`",
    "Pools.serve": "`nursery.start`",
    "Supervisor.dynamic_supervisor": "`supervisor` with a kind",
    "DynamicSupervisor.dynamic_supervisor": "`supervisor` with a kind",
    "Supervisor.supervisor": "call",
    "DynamicSupervisor.supervisor": "call",
}
"""What Trio has in another way."""

WAYS = {
    "call": ("`await`", "`await`", "call"),
    "plain": ("call", "`await`", "call"),
    "direct": ("call", "call", "call"),
    "block": ("`async with`", "`async with`", "`with`"),
    "items": ("`async for`", "`async for`", "`for`"),
    "attribute": ("attribute", "attribute", "attribute"),
}


def ways() -> dict[str, str]:
    """Each name of the faces that is more than data, `Class.member` or a function → how it is used, a key of `WAYS`."""
    found: dict[str, str] = {}
    for name in columns.FUNCTIONS:
        found[name] = "block" if function_of(columns.value_of(name)).given else "call"
    for proxied in CLASSES:
        kinds = _kinds(proxied)
        found |= {f"{proxied.source.__name__}.{member}": kind for member, kind in sorted(kinds.items())}
    return found


def _kinds(proxied: Proxied) -> dict[str, str]:
    hidden = {*proxied.hidden.split(), *re.findall(r"def (\w+)", proxied.extra)}
    members = members_of(proxied.source)
    kinds = {
        name: "attribute" for name in (*proxied.fields, *declared_of(proxied.source)) if name not in hidden
    }
    for name, member in members.items():
        if name in hidden or name.startswith("_"):
            continue
        is_attribute = "property" in member.decorators and name not in proxied.plain.split()
        is_made = "classmethod" in member.decorators
        kinds[name] = "attribute" if is_attribute else "direct" if is_made else kind_of(proxied, member)
    kinds |= _written(proxied.extra)
    if proxied.items:
        kinds["batch"] = "call"
        kinds["items"] = "items"
    if "__aenter__" in members:
        kinds["block"] = "block"
    return {name: kind for name, kind in kinds.items() if not name.startswith("_")}


def _written(extra: str) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for decorator, word, name, returns in re.findall(
        r"(@property\n\s+)?(\{async_\})?def (\w+)\((?:.|\n)*?\) -> ([^:\n]+):", extra
    ):
        kind = "call" if word else "block" if returns.startswith("Block") else "direct"
        kinds[name] = "attribute" if decorator else kind
    return {name: kind for name, kind in kinds.items() if not name.startswith("__")}


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_used(), *_own(), *_data(), *_absent()])


def _used() -> Iterator[str]:
    yield "## Functions and classes\n"
    yield "| name | Trio | asyncio | plain |\n| --- | --- | --- | --- |"
    for name, kind in ways().items():
        trio, aio, sync = WAYS[kind]
        trio = OTHERWISE.get(name, trio)
        klass, _, member = name.partition(".")
        if member == "batch" and klass != "Run":
            trio = "-"
        shown = name if member not in ("items", "block") else klass
        yield f"| `{shown}` | {trio} | {aio} | {sync} |"
    yield ""


def _own() -> Iterator[str]:
    yield "## Functions of yours\n"
    yield "| made by | Trio: async function | asyncio: coroutine function, in your loop | plain: function, in a worker thread |"
    yield "| --- | --- | --- | --- |"
    yield "| `tool` | `proctor.tool` | `proctor.aio.tool` | `proctor.sync.tool` |"
    yield "| `Hook` | `proctor.Hook` | `proctor.aio.Hook` | `proctor.sync.Hook` |"
    yield "| the option `permission` | the function itself | `proctor.aio.policy` | `proctor.sync.policy` |"
    yield "| models of `Provider`, `Providers` | `proctor` | `proctor.aio` | `proctor.sync` |\n"
    yield "`pool_spec` takes the pools of its face. `TrioThread`, and in plain code `timeout`, are names of the faces alone."
    yield "Their errors are `BridgeClosed`, `CallerGone` and `WrongFace`, all a `BridgeError`.\n"


def _data() -> Iterator[str]:
    yield "## The same in each\n"
    yield "Records, events, errors, and functions that only make such:"
    yield ", ".join(f"`{name}`" for name in sorted(columns.data() | columns.SPECS.keys())) + ".\n"
    for name, note in columns.DATA_NOTES.items():
        yield f"- `{name}`: {note}."
    yield ""


def _absent() -> Iterator[str]:
    yield "## In `proctor` alone\n"
    for name, why in columns.ABSENT.items():
        yield f"- `{name}`: {why}."


def exists(name: str) -> bool:
    """Whether a name of the table is a class of the faces."""
    return name.partition(".")[0] in NAMES
