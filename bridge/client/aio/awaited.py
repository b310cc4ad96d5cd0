"""Asynchronous methods, made of the synchronous ones: what both lanes say is said once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


def awaited(
    method: Callable[Concatenate[Any, Given], Result],
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]]:
    """Return a method that awaits what another one returns.

    Args:
        method: ends with a call of its object, which is a coroutine here. One that takes any named
            options has its `self` by position only, as this one has.
    """

    @wraps(method)
    async def awaits(self: Any, /, *given: Given.args, **named: Given.kwargs) -> Result:
        called: Any = method(self, *given, **named)
        result: Result = await called
        return result

    return awaits
