"""What the asyncio face and the plain face have in common: objects that stand for one of Trio."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, Generic, Self, TypeVar

from proctor.bridge.trio_thread import TrioThread, current_thread

T = TypeVar("T")


class Proxy(Generic[T]):
    """Stands for an object of Trio, and belongs to its thread: that of its maker, or else of its first use."""

    _target: T
    _home: TrioThread | None = None

    @classmethod
    def around(cls, target: T, thread: TrioThread | None = None) -> Self:
        """One that stands for `target`, an object that this program got from Trio, such as the `ref` of a record."""
        proxy = cls.__new__(cls)
        proxy._target, proxy._home = target, thread
        return proxy

    @property
    def _thread(self) -> TrioThread:
        if self._home is None:
            self._home = current_thread()
        return self._home

    def __repr__(self) -> str:
        return f"<{type(self).__module__.rpartition('.')[0]} {self._target!r}>"


def unwrapped(value: Any) -> Any:
    """The value as Trio has it: a proxy's target, also within tuples and lists, and the target's method for a proxy's.

    Anything else is the same object there: a message may be a list that its receiver changes.
    """
    if _is_proxy(value):
        return value._target  # pyright: ignore[reportPrivateUsage]
    if type(value) is MethodType and _is_proxy(value.__self__):
        return getattr(unwrapped(value.__self__), value.__name__)
    items: Any = value
    if type(value) in (list, tuple) and any(map(_is_proxy, items)):
        return type(items)(map(unwrapped, items))
    return value


def _is_proxy(value: object) -> bool:
    return isinstance(value, Proxy)


def bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """A call of Trio's `function` with what the caller gave."""
    if not args and not kwargs:
        return function
    return partial(
        function, *map(unwrapped, args), **{name: unwrapped(value) for name, value in kwargs.items()}
    )
