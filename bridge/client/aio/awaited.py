"""Asynchronous methods made from synchronous ones: signature and docstring are written once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


def awaited(
    method: Callable[Concatenate[Any, Given], Result],
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]]:
    """Return a method that awaits the result of another method.

    Args:
        method: returns the result of a call on its object, here a coroutine.
    """

    @wraps(method)
    async def awaits(self: Any, /, *given: Given.args, **named: Given.kwargs) -> Result:
        called: Any = method(self, *given, **named)
        result: Result = await called
        return result

    return awaits
