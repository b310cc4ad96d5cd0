"""The values of an entity's fields as JSON, and back, with their exact types.

A filter's parameters and properties are typed in Service Bus. Text, whole numbers and booleans are
JSON's own. Every other value is `{"type": ..., "value": text}`: JSON has no such type, or RabbitMQ
would write the value back in another form (fractions).

A value of a type that older versions do not know is written as its nearest value that they know,
and stands beside it in `exact`, in the same form, which they do not look at. A `value` that was
changed by hand counts: `exact` holds for its own value only.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, assert_never
from uuid import UUID

from bridge.model import entity as model
from bridge.model.decimals import text_of
from bridge.model.duration import format_duration, parse_duration_ms
from bridge.model.errors import ArgumentError
from bridge.model.properties import camel
from bridge.model.rule_values import (
    DATE_TIME,
    DATE_TIME_OFFSET,
    TEXT_KINDS,
    WHOLE_KINDS,
    Moment,
    Single,
    Span,
    Text,
    Whole,
    exact_text,
    read_time,
    ticks_of,
    without_type,
)
from bridge.model.rules import CORRELATION_FIELDS
from bridge.topology.resources import Value

_TYPED: dict[str, tuple[type, Callable[[Any], str], Callable[[str], object]]] = {
    "null": (NoneType, lambda value: "", lambda text: None),
    "double": (float, repr, float),
    "dateTime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "duration": (
        timedelta,
        lambda value: str(value // timedelta(microseconds=1)),
        lambda text: timedelta(microseconds=int(text)),
    ),
    "guid": (UUID, str, UUID),
    "binary": (
        bytes,
        lambda value: base64.b64encode(value).decode(),
        lambda text: base64.b64decode(text, validate=True),
    ),
}


def _moment(kind: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        found = read_time(text)
        return Moment.of(found, found.tick if isinstance(found, Moment) else 0, kind)

    return read


def _whole(kind: str) -> Callable[[str], object]:
    return lambda text: Whole(int(text), kind)


def _text(kind: str) -> Callable[[str], object]:
    return lambda text: Text(text, kind)


_EXACT: dict[str, Callable[[str], object]] = {
    **{kind: _whole(kind) for kind in WHOLE_KINDS},
    **{kind: _text(kind) for kind in TEXT_KINDS},
    **{kind: _moment(kind) for kind in (DATE_TIME, DATE_TIME_OFFSET)},
    "float": Single,
    "ticks": lambda text: Span.of_ticks(int(text)),
    "decimal": Decimal,
}
"""Type in `exact` -> reader of its text."""


def _exact_written(value: object) -> tuple[str, str] | None:
    """Return type and text of a value that older versions do not know; else `None`."""
    match value:
        case Whole() | Text():
            return value.kind, str(value)
        case Single():
            return value.kind, repr(float(value))
        case Moment():
            return value.kind, exact_text(value)
        case Span():
            return "ticks", str(ticks_of(value))
        case Decimal():
            return "decimal", text_of(value)
    return None


_CORRELATION_KEYS = {field: camel(name) for name, field in CORRELATION_FIELDS.items()}


def written(field: str, value: object) -> Value:
    """Return the JSON of one field of an entity."""
    if isinstance(value, tuple):
        return [_element_written(each) for each in value]
    if isinstance(value, Enum):
        return str(value.value)
    if field.endswith("_ms") and isinstance(value, int):
        return format_duration(value)
    assert value is None or isinstance(value, bool | int | str), field
    return value


def read(kind: object, field: str, key: str, value: Value) -> object:
    """Return a field's value from its JSON.

    Args:
        kind: the field's type.
        key: the field's name in JSON, for error messages.

    Raises:
        ArgumentError: the value is not of that type.
    """
    if field.endswith("_ms"):
        try:
            return parse_duration_ms(_is(value, str, key))
        except ValueError as error:
            raise ArgumentError(f"{key}: {error}.") from None
    if kind is bool or kind is int or kind is str:
        return _is(value, kind, key)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind, value, key)
    if field == "authorization_rules":
        return tuple(_authorization_rule(each, key) for each in _is(value, list, key))
    if field == "rules":
        return tuple(_rule(each, key) for each in _is(value, list, key))
    return None if value is None else _is(value, int, key)


def _is(value: object, kind: type, key: str) -> Any:
    if type(value) is not kind:
        raise ArgumentError(f"{key} is {value!r}; it must be of type {kind.__name__}.")
    return value


def _member(kind: type[Enum], value: Value, key: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise ArgumentError(f"{key} is {value!r}; it must be one of {known}.") from None


def _element_written(element: object) -> Value:
    if isinstance(element, model.AuthorizationRule):
        return {
            "name": element.name,
            "primaryKey": element.primary_key,
            "secondaryKey": element.secondary_key,
            "rights": [right.value for right in model.Right if right in element.rights],
            **_given("createdAt", element.created_at),
            **_given("modifiedAt", element.modified_at),
        }
    assert isinstance(element, model.Rule)
    return {
        "name": element.name,
        "filter": _filter_written(element.filter),
        "action": element.action,
        **_given("actionParameters", _pairs_written(element.action_parameters)),
        **_given("createdAt", element.created_at),
    }


def _given(key: str, value: Value) -> dict[str, Value]:
    """Return a field unless its value is empty: what older versions wrote has no such field."""
    return {key: value} if value else {}


def _filter_written(given: model.Filter) -> Value:
    match given:
        case model.TrueFilter():
            return {"type": "true"}
        case model.FalseFilter():
            return {"type": "false"}
        case model.SqlFilter():
            return {
                "type": "sql",
                "expression": given.expression,
                "parameters": _pairs_written(given.parameters),
            }
        case model.CorrelationFilter():
            fields: dict[str, Value] = {
                key: getattr(given, field)
                for field, key in _CORRELATION_KEYS.items()
                if getattr(given, field) is not None
            }
            return {"type": "correlation", **fields, "properties": _pairs_written(given.properties)}
        case _:
            assert_never(given)


def _pairs_written(pairs: tuple[tuple[str, object], ...]) -> Value:
    """Return a list of objects: it keeps the order of parameters, and equal names.

    A list of lists would not do: `rabbitmqctl export_definitions` writes it as one string.
    """
    return [_pair_written(name, value) for name, value in pairs]


def _pair_written(name: str, value: object) -> Value:
    pair: dict[str, Value] = {"name": name, "value": _typed_written(value)}
    exact = _exact_written(value)
    if exact is not None:
        pair["exact"] = {"type": exact[0], "value": exact[1]}
    return pair


def _typed_written(value: object) -> Value:
    value = float(value) if isinstance(value, Decimal) else without_type(value)
    if isinstance(value, bool | int | str):
        return value
    for name, (kind, write, _) in _TYPED.items():
        if isinstance(value, kind):
            return {"type": name, "value": write(value)}
    raise ArgumentError(f"{value!r} is no value that a filter can hold.")


def _authorization_rule(form: Value, key: str) -> model.AuthorizationRule:
    rule = _is(form, dict, key)
    rights = _is(rule.get("rights"), list, f"{key}.rights")
    return model.AuthorizationRule(
        name=_is(rule.get("name"), str, f"{key}.name"),
        primary_key=_is(rule.get("primaryKey", ""), str, f"{key}.primaryKey"),
        secondary_key=_is(rule.get("secondaryKey", ""), str, f"{key}.secondaryKey"),
        rights=frozenset(
            model.Right(_member(model.Right, each, f"{key}.rights").value) for each in rights
        ),
        created_at=_is(rule.get("createdAt", ""), str, f"{key}.createdAt"),
        modified_at=_is(rule.get("modifiedAt", ""), str, f"{key}.modifiedAt"),
    )


def _rule(form: Value, key: str) -> model.Rule:
    rule = _is(form, dict, key)
    return model.Rule(
        name=_is(rule.get("name"), str, f"{key}.name"),
        filter=_filter(_is(rule.get("filter"), dict, f"{key}.filter"), f"{key}.filter"),
        action=_is(rule.get("action", ""), str, f"{key}.action"),
        action_parameters=_pairs(rule.get("actionParameters", []), f"{key}.actionParameters"),
        created_at=_is(rule.get("createdAt", ""), str, f"{key}.createdAt"),
    )


def _filter(form: dict[str, Value], key: str) -> model.Filter:
    match form.get("type"):
        case "true":
            return model.TrueFilter()
        case "false":
            return model.FalseFilter()
        case "sql":
            return model.SqlFilter(
                expression=_is(form.get("expression"), str, f"{key}.expression"),
                parameters=_pairs(form.get("parameters", []), f"{key}.parameters"),
            )
        case "correlation":
            fields = {
                field: _is(form[name], str, f"{key}.{name}")
                for field, name in _CORRELATION_KEYS.items()
                if form.get(name) is not None
            }
            properties = _pairs(form.get("properties", []), f"{key}.properties")
            return model.CorrelationFilter(properties=properties, **fields)
        case other:
            raise ArgumentError(
                f"{key}.type is {other!r}; it must be true, false, sql or correlation."
            )


def _pairs(form: Value, key: str) -> tuple[tuple[str, object], ...]:
    pairs = [_is(pair, dict, key) for pair in _is(form, list, key)]
    return tuple(
        (_is(pair.get("name"), str, f"{key}.name"), _pair_value(pair, key)) for pair in pairs
    )


def _pair_value(pair: dict[str, Value], key: str) -> object:
    value = _typed(pair.get("value"), key)
    exact = pair.get("exact")
    reader = _EXACT.get(str(exact.get("type"))) if isinstance(exact, dict) else None
    if reader is None:
        return value
    assert isinstance(exact, dict)
    try:
        found = reader(_is(exact.get("value"), str, key))
    except (ValueError, ArithmeticError):
        return value
    return found if _typed_written(found) == pair.get("value") else value


def _typed(form: object, key: str) -> object:
    if not isinstance(form, dict):
        return form
    kind = _TYPED.get(str(form.get("type")))
    if kind is None:
        raise ArgumentError(f"{key}: {form.get('type')!r} is no type of Service Bus.")
    try:
        return kind[2](_is(form.get("value"), str, key))
    except ValueError as error:
        raise ArgumentError(f"{key}: {error}.") from None
