"""A subscription's own copy of a message, changed by a rule's action.

A changed number keeps its AMQP type if it fits. A value that 0-9-1 cannot represent goes into the
exact sections, as in a message that an SDK sends. A changed ScheduledEnqueueTimeUtc has no effect
(Azure, SQL action syntax), so it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from bridge.model.filters.changes import REMOVED, PropertyChange
from bridge.model.filters.errors import FilterException
from bridge.model.filters.message import SYSTEM_PROPERTIES
from bridge.wire import headers
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_list,
    encode_string,
    encode_symbol,
)
from bridge.wire.basic import Properties, Table, text
from bridge.wire.envelope import Item
from bridge.wire.filter_values import milliseconds_of, to_field
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import utf8
from bridge.wire.mapping.inward import SHORT_STRING_BYTES_MAX
from bridge.wire.mapping.names import BASIC_PROPERTIES, HEADER_PROPERTIES, PROPERTY_NAMES
from bridge.wire.mapping.outward import exact_sections, merge_properties
from bridge.wire.message_view import HEADER_TEXTS, TEXT_PROPERTIES
from bridge.wire.record import Record

RULE_NAME: Final = "RuleName"
"""Application property of a copy that an action changed (Azure, topic filters)."""


def changed_copy(
    item: Item, rule_name: str, changes: Iterable[PropertyChange], *, properties_bytes_max: int
) -> Item:
    """Return the copy of a message that a rule with an action makes for a subscription.

    Args:
        item: the message as the sender sent it, which is not changed.
        rule_name: the rule's name, for the copy's property `RuleName`.
        changes: the changes that the rule's action makes.
        properties_bytes_max: the maximum size of a message's properties.

    Raises:
        FilterException: the properties become too large, or a text becomes one that RabbitMQ
            cannot hold as a basic property.
    """
    properties = Properties.decode(item.properties)
    table = properties.headers or {}
    user: Table = {RULE_NAME: text(rule_name)}
    removed = [name for name in table if name.lower() == RULE_NAME.lower()]
    texts: dict[str, str | None] = {}
    ttl_ms = item.ttl_ms
    for change in changes:
        if not change.is_system:
            if change.value is REMOVED:
                removed.append(change.name)
            else:
                user.setdefault(change.name, to_field(change.value, table.get(change.name)))
        elif change.name == "timetolive":
            span = change.value
            ttl_ms = max(0, milliseconds_of(span)) if isinstance(span, timedelta) else None
        elif change.name != "scheduledenqueuetimeutc":
            texts[change.name] = change.value if isinstance(change.value, str) else None
    _set_texts(properties, texts)
    record = merge_properties(Record(properties, b""), user, removed)
    raw = record.properties.encode()
    if len(raw) > properties_bytes_max:
        raise FilterException(
            f"The action makes the properties {len(raw)} bytes; a message has "
            f"{properties_bytes_max} at most."
        )
    return Item(raw, item.body, ttl_ms, item.scheduled_ms, item.key)


def _set_texts(properties: Properties, texts: dict[str, str | None]) -> None:
    """Set system properties that are texts; a value of `None` removes the property."""
    table: Table = properties.headers or {}
    exact: dict[str, str | None] = {}
    for name, value in texts.items():
        amqp_name = TEXT_PROPERTIES.get(name)
        if amqp_name is not None:
            exact[amqp_name] = value
        basic = BASIC_PROPERTIES.get(amqp_name or "")
        if basic is not None:
            setattr(properties, basic, _short(name, value))
        else:
            _set_header(table, HEADER_TEXTS.get(name) or HEADER_PROPERTIES[amqp_name or ""], value)
    if exact:
        _set_exact(table, exact)
    properties.headers = table


def _short(name: str, value: str | None) -> str | None:
    """Return a value, or raise `FilterException` if a basic property cannot hold it."""
    if value is None:
        return None
    is_long = len(utf8(value)) > SHORT_STRING_BYTES_MAX
    # In AMQP 1.0 the content type is a symbol, which is ASCII.
    is_foreign = name == "contenttype" and not value.isascii()
    if is_long or is_foreign or value == headers.DIRECT_REPLY_TO:
        raise FilterException(
            f"The action sets {SYSTEM_PROPERTIES[name]} to what RabbitMQ cannot hold: more than "
            f"{SHORT_STRING_BYTES_MAX} bytes, an address of its own, or no ASCII in a content type."
        )
    return value


def _set_header(table: Table, header: str, value: str | None) -> None:
    if value is None:
        table.pop(header, None)
    else:
        table[header] = text(value)


def _set_exact(table: Table, texts: dict[str, str | None]) -> None:
    """Change the exact properties section, where the message has one."""
    found = exact_sections(table)
    if found is None or part.PROPERTIES not in found.at:
        return
    items = [found.raw[start:end] for start, end in found.items(part.PROPERTIES)]
    items += [NULL] * (len(PROPERTY_NAMES) - len(items))
    for name, value in texts.items():
        encode = encode_symbol if name == "content-type" else encode_string
        items[PROPERTY_NAMES.index(name)] = NULL if value is None else encode(utf8(value))
    table[headers.SECTIONS] = ("x", found.with_section(part.PROPERTIES, encode_list(items)))
