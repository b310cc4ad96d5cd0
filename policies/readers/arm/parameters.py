"""Values of a template's parameters that Azure refuses before any deployment."""

from __future__ import annotations

from collections.abc import Iterator

from policies.errors import Position
from policies.readers.arm.evaluation import Scope
from policies.readers.arm.unresolved import is_unresolved
from policies.readers.jsontext import Node


def refused_parameters(scope: Scope) -> Iterator[tuple[Position, str]]:
    """Yield place and message of each parameter that has no value or breaks a constraint.

    A value that only Azure knows is not checked.
    """
    given = {name.lower() for name, value in scope.given.items() if value is not None}
    for name, declared in scope.template["parameters"].members.items():
        is_given = name.lower() in given
        if not is_given and "defaultValue" not in declared:
            if declared["nullable"].value is not True:
                yield declared.place, f"The parameter {name!r} has no value."
            continue
        value = scope.parameter(name)
        if value is None or is_unresolved(value):
            continue
        shown = "a secret" if declared["type"].text.lower().startswith("secure") else repr(value)
        for reason in _broken(value, declared):
            yield declared.place, f"The parameter {name!r} is {shown}; {reason}."


def _broken(value: object, declared: Node) -> Iterator[str]:
    """Yield a message for each constraint of a declaration that a value breaks."""
    allowed = declared["allowedValues"]
    if allowed.items and not _is_allowed(value, [each.plain() for each in allowed.items]):
        choices = ", ".join(str(each.plain()) for each in allowed.items)
        yield f"the template allows {choices}"
    if isinstance(value, str | list):
        unit = "characters" if isinstance(value, str) else "elements"
        yield from _outside(len(value), declared["minLength"], declared["maxLength"], f" {unit}")
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from _outside(value, declared["minValue"], declared["maxValue"], "")


def _outside(size: int, low: Node, high: Node, unit: str) -> Iterator[str]:
    if isinstance(low.value, int) and size < low.value:
        yield f"the template takes no less than {low.value}{unit}"
    if isinstance(high.value, int) and size > high.value:
        yield f"the template takes no more than {high.value}{unit}"


def _is_allowed(value: object, allowed: list[object]) -> bool:
    """Whether a value, or each element of an array, is allowed; case does not matter."""
    choices = [_folded(each) for each in allowed]
    if _folded(value) in choices:
        return True
    return isinstance(value, list) and all(_folded(each) in choices for each in value)


def _folded(value: object) -> object:
    return value.lower() if isinstance(value, str) else value
