"""Definitions as RabbitMQ gives them: JSON values, of which each should be an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.model.errors import ArgumentError
from bridge.topology.resources import Value

DEPTH_MAX = 64
"""Maximum nesting of a definition; the deepest part, a filter's parameter, has seven levels."""


def as_object(form: Value | Mapping[str, Value]) -> Mapping[str, Value]:
    """Return a JSON form as an object.

    Raises:
        ArgumentError: the form is none, or nests deeper than any definition.
    """
    if _is_too_deep(form):
        raise ArgumentError(f"A definition nests {DEPTH_MAX} levels at most.")
    if isinstance(form, Mapping):
        return form
    raise ArgumentError(f"A definition is an object, not {form!r}.")


def _is_too_deep(form: Value | Mapping[str, Value]) -> bool:
    level: list[Any] = [form]
    for _ in range(DEPTH_MAX + 1):
        children: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                children += each.values()
            elif isinstance(each, list):
                children += each
        if not children:
            return False
        level = children
    return True
