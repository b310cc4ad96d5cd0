"""SQL actions: SET and REMOVE, carried out on a message's properties, one after another.

A later statement sees the results of earlier ones; the message itself does not change, the result
is the list of changes. SET converts a value to the present type of the property; a new property has
the value's type. The action fails for a value that does not convert, for a system property that
does not exist or cannot be set, and for an id that becomes too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from bridge.model.filters.changes import REMOVED, Changes, PropertyChange
from bridge.model.filters.conversion import convert
from bridge.model.filters.errors import FilterException
from bridge.model.filters.evaluation import Evaluate, NewGuid, compile_expression
from bridge.model.filters.expression import Set, Statement
from bridge.model.filters.message import SYSTEM_PROPERTIES, FilteredMessage, Property
from bridge.model.filters.parser import parse_action
from bridge.model.filters.values import Value, ValueKind, kind_of

Action = Callable[[FilteredMessage], Changes]

SETTABLE: dict[str, type] = {
    "contenttype": str,
    "correlationid": str,
    "label": str,
    "messageid": str,
    "partitionkey": str,
    "replyto": str,
    "replytosessionid": str,
    "scheduledenqueuetimeutc": datetime,
    "sessionid": str,
    "timetolive": timedelta,
    "to": str,
    "viapartitionkey": str,
}
"""System properties that an action may set, and the class of their values."""

KEYS = frozenset({"messageid", "partitionkey", "replytosessionid", "sessionid", "viapartitionkey"})
KEY_LENGTH_MAX = 128
"""Characters of one of `KEYS` (Azure, Service Bus quotas)."""


KEPT_MAX = 8_192
"""Compiled actions that are kept: a changed definition compiles only its changed actions."""


def compile_action(
    text: str, new_id: NewGuid, parameters: Sequence[tuple[str, Value]] = ()
) -> Action | None:
    """Return the compiled action, `None` when the text is empty; InvalidRule when it is invalid."""
    if not text.strip():
        return None
    if parameters:
        return _of_statements(parse_action(text, dict(parameters)), new_id)
    return _compiled(text, new_id)


@lru_cache(KEPT_MAX)
def _compiled(text: str, new_id: NewGuid) -> Action:
    return _of_statements(parse_action(text), new_id)


def _of_statements(statements: Sequence[Statement], new_id: NewGuid) -> Action:
    steps = [_step(each, new_id) for each in statements]

    def carry_out(message: FilteredMessage) -> Changes:
        message.spend(message.properties_bytes)
        state = _Changed(message)
        for step in steps:
            step(state)
        return state.changes()

    return carry_out


class _Changed:
    """A message with the changes of earlier statements (a `FilteredMessage`)."""

    def __init__(self, message: FilteredMessage) -> None:
        self.user: dict[str, Value] = dict(message.user)
        self._message = message
        self._changed: dict[Property, PropertyChange] = {}

    @property
    def properties_bytes(self) -> int:
        return self._message.properties_bytes

    def spend(self, characters: int) -> None:
        self._message.spend(characters)

    def system(self, name: str) -> Value:
        change = self._changed.get(Property(True, name))
        if change is None:
            return self._message.system(name)
        return None if change.value is REMOVED else change.value

    def name_of(self, name: str) -> str:
        return self._message.name_of(name)

    def change(self, of: Property, name: str, value: Value) -> None:
        """Set a property, or remove it with `REMOVED`."""
        self._changed[of] = PropertyChange(of.is_system, of.name if of.is_system else name, value)
        if of.is_system:
            return
        if value is REMOVED:
            self.user.pop(of.name, None)
        else:
            self.user[of.name] = value

    def changes(self) -> Changes:
        return tuple(self._changed.values())


Step = Callable[[_Changed], None]


def _step(statement: Statement, new_id: NewGuid) -> Step:
    of = statement.property
    value = compile_expression(statement.value, new_id) if isinstance(statement, Set) else None
    if of.is_system:
        return _system_step(of, value)
    return _user_step(of, statement.name, value)


def _user_step(of: Property, name: str, value: Evaluate | None) -> Step:
    def step(state: _Changed) -> None:
        found = REMOVED if value is None else _converted(state, of, value(state))
        state.change(of, state.name_of(name), found)

    return step


def _converted(state: _Changed, of: Property, value: Value) -> Value:
    """Return the value in the property's present type; unchanged when the property has none."""
    before = of.read(state)
    if value is None or before is None or kind_of(before) is ValueKind.OTHER:
        return value
    return convert(value, type(before))


def _system_step(of: Property, value: Evaluate | None) -> Step:
    wanted = SETTABLE.get(of.name)
    if wanted is None:
        name = SYSTEM_PROPERTIES.get(of.name)
        reason = (
            f"The system property {name} cannot be changed."
            if name
            else f"There is no system property {of.name!r}."
        )

        def refuse(state: _Changed) -> None:
            raise FilterException(reason)

        return refuse
    kind = wanted

    def step(state: _Changed) -> None:
        found = REMOVED if value is None else convert(value(state), kind)
        if of.name in KEYS and isinstance(found, str) and len(found) > KEY_LENGTH_MAX:
            name = SYSTEM_PROPERTIES[of.name]
            raise FilterException(f"{name} has at most {KEY_LENGTH_MAX} characters.")
        state.change(of, "", REMOVED if found is None else found)

    return step
