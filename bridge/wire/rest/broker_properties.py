"""BrokerProperties: what Service Bus itself knows of a message, in JSON.

Source: "Introduction" and "Message headers and properties" of the Service Bus REST reference
(learn.microsoft.com/rest/api/servicebus/message-headers-and-properties): the names, that properties
other than these are ignored in a request, times in HTTP's form and TimeToLive in seconds.
TimeToLiveTimeSpan is .NET's text of a duration ("Send Message Batch").
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from bridge.model.duration import MAX_MS, TIME_MAX_MS, is_forever, total_ms
from bridge.model.errors import ArgumentError, ArgumentOutOfRange

FOREVER_S = 922337203685.47754
"""TimeToLive of a message that lives for ever, as Service Bus writes it."""

_TEXTS = {
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "PartitionKey": "partition_key",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
    "ViaPartitionKey": "via_partition_key",
}

_TIME_SPAN = re.compile(
    r"(?:(?P<days>\d{1,8})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})"
    r"(?::(?P<seconds>\d{1,2})(?:\.(?P<fraction>\d{1,7}))?)?"
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


@dataclass(slots=True)
class SenderProperties:
    """The properties that a sender gives.

    Attributes:
        scheduled_ms: ScheduledEnqueueTimeUtc (UTC ms).
        time_to_live_ms: `None` for the entity's default, also where the client says 'for ever'.
    """

    correlation_id: str | None = None
    label: str | None = None
    message_id: str | None = None
    partition_key: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    to: str | None = None
    via_partition_key: str | None = None
    scheduled_ms: int | None = None
    time_to_live_ms: int | None = None


def double(text: str) -> float | str:
    """Return a number of JSON; one beyond a double is text: it keeps its digits."""
    number = float(text)
    return number if math.isfinite(number) else text


def parse_json(text: str | bytes, what: str) -> Any:
    """Return a JSON value.

    Raises:
        ArgumentError: it is no JSON; `what` names it.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse, parse_float=double)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{what} cannot be read as JSON: {error}.") from None


def read_broker_properties(said: Any) -> SenderProperties:
    """Return the properties in a decoded JSON object; `null` stands for a missing one.

    Raises:
        ArgumentError: it is no object, or a property has another type.
        ArgumentOutOfRange: TimeToLive is not positive.
    """
    given = SenderProperties()
    if said is None:
        return given
    if not isinstance(said, dict):
        raise ArgumentError("BrokerProperties is no JSON object.")
    for name, value in said.items():
        if value is None:
            continue
        if name in _TEXTS:
            if not isinstance(value, str):
                raise ArgumentError(f"{name} in BrokerProperties is no text.")
            if value:
                setattr(given, _TEXTS[name], value)
        elif name == "TimeToLive":
            given.time_to_live_ms = _seconds_ms(value)
        elif name == "TimeToLiveTimeSpan":
            given.time_to_live_ms = _time_span_ms(value)
        elif name == "ScheduledEnqueueTimeUtc":
            given.scheduled_ms = _time_ms(name, value)
    return given


def _seconds_ms(value: Any) -> int | None:
    if isinstance(value, str) and ":" in value:
        return _time_span_ms(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        raise ArgumentError("TimeToLive in BrokerProperties is no number of seconds.")
    if value * 1000 >= MAX_MS:
        return None
    return _checked(int(value * 1000))


def _time_span_ms(value: Any) -> int | None:
    match = _TIME_SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ArgumentError(
            "TimeToLiveTimeSpan in BrokerProperties is no duration such as 0.00:00:40."
        )
    return _checked(total_ms(match))


def _checked(ttl_ms: int) -> int | None:
    if ttl_ms <= 0:
        raise ArgumentOutOfRange("TimeToLive is to be positive.")
    return None if is_forever(ttl_ms) else ttl_ms


def _time_ms(name: str, value: Any) -> int:
    """Return a time in HTTP's form, or in ISO 8601, which .NET's serializers write."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name} in BrokerProperties is no time.")
    text = value.strip()
    try:
        instant = (
            datetime.fromisoformat(text) if text[:1].isdigit() else parsedate_to_datetime(text)
        )
    except (ValueError, TypeError, OverflowError):
        raise ArgumentError(
            f"{name} in BrokerProperties is no time such as Sun, 06 Nov 1994 08:49:37 GMT."
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return min((instant - _EPOCH) // _MS, TIME_MAX_MS)


def seconds_of(ttl_ms: int | None) -> int | float:
    """Return TimeToLive in seconds, as JSON's number; `None` is for ever."""
    if ttl_ms is None or is_forever(ttl_ms):
        return FOREVER_S
    return ttl_ms // 1000 if ttl_ms % 1000 == 0 else ttl_ms / 1000
