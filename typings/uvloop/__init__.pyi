from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

def run(main: Coroutine[Any, Any, _T]) -> _T: ...
