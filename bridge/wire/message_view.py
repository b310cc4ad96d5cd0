"""A message as filters see it when the sequencer numbers it: its properties, each read once.

Properties are decoded when a filter asks for them, and the body never. An SDK's exact sections take
precedence over their readable forms, as they do on the way out: a filter sees the sender's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bridge.model.duration import MAX_MS
from bridge.model.filters.errors import FilterException
from bridge.model.filters.message import WORK_MAX
from bridge.wire import headers
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.types import read_value
from bridge.wire.basic import Properties, Table, shown_string, text_in
from bridge.wire.envelope import Item
from bridge.wire.filter_values import as_text, from_amqp, from_field, span_of, time_of
from bridge.wire.headers import application_fields
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.names import BASIC_PROPERTIES, HEADER_PROPERTIES, PROPERTY_NAMES
from bridge.wire.mapping.outward import APP_ID_PROPERTY, exact_sections

TEXT_PROPERTIES: Final = {
    "contenttype": "content-type",
    "correlationid": "correlation-id",
    "label": "subject",
    "messageid": "message-id",
    "replyto": "reply-to",
    "replytosessionid": "reply-to-group-id",
    "sessionid": "group-id",
    "to": "to",
}
"""`sys.` name -> property of AMQP 1.0; an id that is no string is its text."""

HEADER_TEXTS: Final = {
    "deadlettersource": headers.DEAD_LETTER_SOURCE,
    "partitionkey": headers.PARTITION_KEY,
    "viapartitionkey": headers.VIA_PARTITION_KEY,
}
"""`sys.` name -> header that holds it as text."""


class MessageView:
    """A message as `bridge.model.filters` reads it (its `FilteredMessage`).

    Args:
        item: the message as the sender sent it, with its own TTL.
        number: the message's sequence number in the topic.
        enqueued_ms: the enqueued time, UTC ms.
        ttl_ms: the effective time to live in the topic, `None` for ever.
    """

    def __init__(self, item: Item, *, number: int, enqueued_ms: int, ttl_ms: int | None) -> None:
        self.item = item
        self.number = number
        self.enqueued_ms = enqueued_ms
        self.ttl_ms = ttl_ms
        self._table: Table = {}
        self._properties: Properties | None = None
        self._exact: part.Sections | None = None
        self._exact_properties: dict[str, object] | None = None
        self._user: dict[str, object] | None = None
        self._names: dict[str, str] = {}
        self._work = 0

    @property
    def properties_bytes(self) -> int:
        """The size of the message's encoded properties."""
        return len(self.item.properties)

    def spend(self, characters: int) -> None:
        """Count characters of the message that rules go over.

        Raises:
            FilterException: the rules have gone over more than `WORK_MAX` characters.
        """
        self._work += characters
        if self._work > WORK_MAX:
            raise FilterException(
                f"The rules of the topic go over more than {WORK_MAX} characters of this message."
            )

    @property
    def user(self) -> dict[str, object]:
        """The user properties by their lower-case names; of two equal names the first counts."""
        if self._user is None:
            user: dict[str, object] = {}
            for name, value in self._application_properties():
                lower = name.lower()
                if lower not in user:
                    user[lower] = value
                    self._names[lower] = name
            self._user = user
        return self._user

    def name_of(self, name: str) -> str:
        """Return a user property's name as the message spells it; `name` if it has none such."""
        return self._names.get(name.lower(), name) if self.user else name

    def system(self, name: str) -> object:
        """Return a system property by its lower-case name, `None` when it has no value."""
        amqp_name = TEXT_PROPERTIES.get(name)
        if amqp_name is not None:
            return self._text(amqp_name)
        header = HEADER_TEXTS.get(name)
        if header is not None:
            self._read()
            return text_in(self._table, header)
        read = _OTHERS.get(name)
        return None if read is None else read(self)

    def _read(self) -> Properties:
        if self._properties is None:
            self._properties = Properties.decode(self.item.properties)
            self._table = self._properties.headers or {}
            self._exact = exact_sections(self._table)
        return self._properties

    def _application_properties(self) -> Iterator[tuple[str, object]]:
        properties, exact = self._read(), self._exact
        pairs: list[tuple[str, object]] = []
        if exact is not None and part.APPLICATION_PROPERTIES in exact.at:
            found = _value(exact, part.APPLICATION_PROPERTIES)
            if isinstance(found, dict):
                pairs += [(str(name), from_amqp(value)) for name, value in found.items()]
            return iter(pairs)
        for name, field in application_fields(self._table).items():
            pairs.append((name, from_field(field)))
        if properties.app_id is not None:
            pairs.append((APP_ID_PROPERTY, shown_string(properties.app_id)))
        return iter(pairs)

    def _text(self, name: str) -> str | None:
        properties = self._read()
        if self._exact is not None and part.PROPERTIES in self._exact.at:
            return as_text(self._exact_items(self._exact).get(name))
        basic = BASIC_PROPERTIES.get(name)
        if basic is not None:
            said: str | None = getattr(properties, basic)
            return None if said is None else shown_string(said)
        return text_in(self._table, HEADER_PROPERTIES[name])

    def _exact_items(self, exact: part.Sections) -> dict[str, object]:
        if self._exact_properties is None:
            items = _value(exact, part.PROPERTIES)
            found = items if isinstance(items, list) else []
            self._exact_properties = dict(zip(PROPERTY_NAMES, found, strict=False))
        return self._exact_properties


def _value(exact: part.Sections, code: int) -> object:
    """Return a section's value, or `None` when it cannot be decoded."""
    try:
        return read_value(exact.raw, exact.at[code][1])[0]
    except (DecodeError, ValueError):
        return None


def _expires(view: MessageView) -> object:
    return time_of(view.enqueued_ms + (MAX_MS if view.ttl_ms is None else view.ttl_ms))


def _scheduled(view: MessageView) -> object:
    view._read()
    scheduled_ms = from_field(view._table.get(headers.SCHEDULED_ENQUEUE_TIME))
    return time_of(scheduled_ms) if isinstance(scheduled_ms, int) else None


def _time_to_live(view: MessageView) -> object:
    return span_of(MAX_MS if view.ttl_ms is None else view.ttl_ms)


def _size(view: MessageView) -> object:
    return len(view.item.properties) + len(view.item.body)


_OTHERS: Final[dict[str, Callable[[MessageView], object]]] = {
    "deliverycount": lambda view: 0,
    "enqueuedsequencenumber": lambda view: view.number,
    "enqueuedtimeutc": lambda view: time_of(view.enqueued_ms),
    "expiresatutc": _expires,
    "forcepersistence": lambda view: False,
    "scheduledenqueuetimeutc": _scheduled,
    "sequencenumber": lambda view: view.number,
    "size": _size,
    "state": lambda view: 0,
    "timetolive": _time_to_live,
}
"""`sys.` name -> reader. LockedUntilUtc and LockToken have no value before it is received."""
