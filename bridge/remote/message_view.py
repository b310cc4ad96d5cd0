"""A received message as filters see it: all that it says about itself, and values of its body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from bridge.model.duration import MAX_MS
from bridge.model.filters.errors import FilterException
from bridge.model.filters.values import Value
from bridge.remote.body_path import BodyPath
from bridge.remote.message import STATES, RemoteMessage
from bridge.wire.filter_values import as_text, from_amqp, span_of, time_of
from bridge.wire.message_view import HEADER_TEXTS, TEXT_PROPERTIES


class RemoteMessageView:
    """A message as `bridge.model.filters` reads it (its `FilteredMessage`).

    Args:
        paths: values of the body by the property's name that stands for each.
    """

    def __init__(self, message: RemoteMessage, paths: Mapping[str, BodyPath] | None = None) -> None:
        self.message = message
        self._names: dict[str, str] = {}
        values: dict[str, Value] = {}
        for name, value in message.application_property_values.items():
            lower = str(name).lower()
            if lower not in values:
                values[lower] = from_amqp(value)
                self._names[lower] = name
        self.user: Mapping[str, Value] = _Properties(message, values, paths or {})

    @property
    def properties_bytes(self) -> int:
        """The size of the message's properties."""
        return len(self.message.properties) + len(self.message.application_properties)

    def spend(self, characters: int) -> None:
        """Count nothing: one user's question keeps no others waiting."""

    def system(self, name: str) -> Value:
        """Return a system property by its lower-case name, `None` when it has no value."""
        field = TEXT_PROPERTIES.get(name)
        if field is not None:
            return as_text(getattr(self.message.property_fields, field.replace("-", "_")))
        annotation = HEADER_TEXTS.get(name)
        if annotation is not None:
            return as_text(self.message.annotation_values.get(annotation))
        read = _OTHERS.get(name)
        return None if read is None else read(self.message)

    def name_of(self, name: str) -> str:
        """Return a user property's name as the message spells it; `name` if it has none such."""
        return self._names.get(name.lower(), name)


class _Properties(Mapping[str, Value]):
    """The user properties by their lower-case names; of two equal names the first counts."""

    def __init__(
        self, message: RemoteMessage, values: Mapping[str, Value], paths: Mapping[str, BodyPath]
    ) -> None:
        self._message = message
        self._values = values
        self._paths = paths
        self._body: Any = _UNREAD

    def __getitem__(self, name: str) -> Value:
        path = self._paths.get(name)
        if path is None:
            return self._values[name]
        if self._body is _UNREAD:
            self._body = body_value(self._message)
        return _comparable(path.find(self._body))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


_UNREAD: Final = object()


def body_value(message: RemoteMessage) -> Any:
    """Return what the body of a message says in JSON, or the map or list that it is.

    Raises:
        FilterException: it is neither.
    """
    if message.body_kind == "value":
        value = message.body_values[0]
        if not isinstance(value, str):
            return value
        return _json_of(value.encode("utf-8", "surrogatepass"))
    if message.body_kind != "data":
        raise FilterException(
            "The message has no body."
            if message.body_kind == "none"
            else "The body is an AMQP sequence, no JSON."
        )
    return _json_of(message.data)


def _json_of(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FilterException(f"The body is no JSON: no UTF-8 at byte {error.start + 1}.") from None
    except json.JSONDecodeError as error:
        raise FilterException(
            f"The body is no JSON: {error.msg} at character {error.pos + 1}."
        ) from None
    except RecursionError:
        raise FilterException("The JSON of the body nests too deeply.") from None
    except ValueError:  # Python reads whole numbers of 4,300 digits at most
        raise FilterException("A number in the JSON of the body is too long.") from None


def _comparable(value: Any) -> Value:
    """Return a value of the body as a filter compares it."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            raise FilterException("A number in the JSON of the body is too large.") from None
    return from_amqp(value)


def _ttl_ms(message: RemoteMessage) -> int | None:
    """Return the time to live; that of two times where the header's 32 bits do not hold it."""
    fields = message.property_fields
    if fields.absolute_expiry_time is not None and fields.creation_time is not None:
        return fields.absolute_expiry_time - fields.creation_time
    return message.ttl_ms


def _expires(message: RemoteMessage) -> Value:
    absolute_ms, enqueued_ms = (
        message.property_fields.absolute_expiry_time,
        message.enqueued_time_ms,
    )
    if absolute_ms is not None:
        return time_of(absolute_ms)
    if enqueued_ms is None:
        return None
    ttl_ms = message.ttl_ms
    return time_of(int(enqueued_ms) + (MAX_MS if ttl_ms is None else int(ttl_ms)))


def _span(message: RemoteMessage) -> Value:
    ttl_ms = _ttl_ms(message)
    return span_of(MAX_MS if ttl_ms is None else int(ttl_ms))


def _time(value_ms: int | None) -> Value:
    return None if value_ms is None else time_of(int(value_ms))


def _whole(value: int | None) -> Value:
    return None if value is None else int(value)


_OTHERS: Final[dict[str, Callable[[RemoteMessage], Value]]] = {
    "deliverycount": lambda message: int(message.delivery_count),
    "enqueuedsequencenumber": lambda message: _whole(message.enqueued_sequence_number),
    "enqueuedtimeutc": lambda message: _time(message.enqueued_time_ms),
    "expiresatutc": _expires,
    "forcepersistence": lambda message: False,
    "lockeduntilutc": lambda message: _time(message.locked_until_ms),
    "scheduledenqueuetimeutc": lambda message: _time(message.scheduled_enqueue_time_ms),
    "sequencenumber": lambda message: _whole(message.sequence_number),
    "size": lambda message: message.size_bytes,
    "state": lambda message: STATES.index(message.state),
    "timetolive": _span,
}
"""`sys.` name -> reader; LockToken has no value here."""
