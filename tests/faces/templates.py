"""Parts of the two faces that are written by hand."""

from __future__ import annotations

SPEC_PARTS = '''
def tool(
    function: Callable[..., {result}] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Any:
    """Make a typed {kind} a `Tool`, bare or with options. It runs {place}."""

    def made(function: Callable[..., {result}]) -> Tool:
        return _tool(hosted(function), name=name, description=description, timeout=timeout)

    return made if function is None else made(function)


class Hook(_Hook):
    """A hook whose function is a {kind}, which runs {place}."""

    def __init__(
        self,
        point: str,
        function: Callable[[HookCalled], {hook}],
        *,
        matcher: str | None = None,
        timeout: float = 60.0,
        blocking: bool = True,
    ) -> None:
        super().__init__(point, hosted(function), matcher=matcher, timeout=timeout, blocking=blocking)


def policy(function: Callable[[ApprovalRequested], {verdict}]) -> Asker:
    """Make a {kind} the `permission` of an agent. It runs {place}."""
    return hosted(function)
'''

TOOL_OVERLOADS = """
@overload
def tool(
    function: Callable[..., {result}],
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Tool: ...


@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 600.0,
) -> Callable[[Callable[..., {result}]], Tool]: ...

"""

SPEC_IMPORTS = """
from collections.abc import Awaitable, Callable
from typing import Any, overload
from proctor.actors.plan.permissions import Asker, Verdict
from proctor.actors.tools.hooks import Hook as _Hook
from proctor.actors.tools.hooks import HookResult
from proctor.actors.tools.tools import Tool
from proctor.actors.tools.tools import tool as _tool
from proctor.protocols.vocabulary import ApprovalRequested, HookCalled
"""

BATCH = '''

def batch(
    tasks: Iterable[BatchTask],
    agents: ChildSpec | Plan | Sequence[ChildSpec | Plan],
    *,
    limit: int = 4,
    repeat: int = 1,
    results: str | Path | None = None,
    budget: float | None = None,
    retry: Retry = RETRY,
    keep: Keep = "none",
    seed: int | None = None,
) -> Block[Batch]:
    """Give each of `tasks` to each of `agents`: a block that gives the results as they end, and stops what runs when it is left."""
    return Block(
        current_thread(),
        Batch.around,
        _batch,
        tasks,
        agents,
        limit=limit,
        repeat=repeat,
        results=results,
        budget=budget,
        retry=retry,
        keep=keep,
        seed=seed,
    )
'''

BATCH_IMPORTS = """
from collections.abc import Iterable, Sequence
from pathlib import Path
from proctor import BatchTask, ChildSpec, Retry
from proctor.actors.batch.attempt import Keep
from proctor.actors.batch.batch import batch as _batch
from proctor.actors.plan.plan import Plan
from proctor.actors.serving.retry import RETRY
"""

POOL_SPEC = '''

def pool_spec(id: str, pool: Pool | Pools, *, shutdown: float = 20.0, **spec: Any) -> ChildSpec:
    """Child spec of a pool. Put it before the children that use it: the tree stops it with all that runs in it."""
    return _pool_spec(id, unwrapped(pool), shutdown=shutdown, **spec)
'''

WORDS = {
    "aio": {
        "async_": "async ",
        "await_": "await ",
        "result": "Awaitable[Any]",
        "hook": "Awaitable[bool | HookResult | None]",
        "verdict": "Awaitable[bool | Verdict]",
        "kind": "coroutine function",
        "place": "in the loop that opened the agents",
    },
    "sync": {
        "async_": "",
        "await_": "",
        "result": "Any",
        "hook": "bool | HookResult | None",
        "verdict": "bool | Verdict",
        "kind": "plain function",
        "place": "in a worker thread",
    },
}

HEADS = {
    "aio": '"""proctor for asyncio programs: {}.\n\nWritten by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.\n"""',
    "sync": '"""proctor for plain code: {}.\n\nWritten by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.\n"""',
}

TOPICS = {
    "agents": "agents, their turns, and runs without a tree",
    "supervision": "supervisors, and the actors below them",
    "serving": "pools, sessions, completion models and providers",
    "client": "fleets in other processes",
    "stores": "stores of requests",
    "specs": "tools, hooks and policies",
}
