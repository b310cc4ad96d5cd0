"""Custom properties as fields of an HTTP head: one field for each property, its value in JSON.

Source: "Message headers and properties", "Send Message" and "Peek-Lock Message" of the Service Bus
REST reference (learn.microsoft.com/rest/api/servicebus): a text is in quotation marks, a number and
a truth value are not, a time is text in HTTP's own form. What is no JSON is taken as text, as in
the reference's example (`Priority: High` comes back as `Priority: "High"`).
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, NoReturn
from urllib.parse import quote
from uuid import UUID

from bridge.model.decimals import text_of
from bridge.model.duration import readable_time_ms
from bridge.wire.amqp10.decimals import decode_decimal
from bridge.wire.amqp10.scalars import Decimal128, Int, Timestamp, Ulong
from bridge.wire.basic import shown_text
from bridge.wire.rest.broker_properties import double

BROKER_PROPERTIES = "BrokerProperties"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A name that HTTP takes (RFC 9110, section 5.6.2)."""

_TOKEN_MARKS = "!#$&'*+-.^_`|~"

_INT_MAX, _LONG_MAX, _ULONG_MAX = 2**31, 2**63, 2**64

NOT_PROPERTIES = frozenset(
    (
        *("accept", "accept-charset", "accept-encoding", "accept-language", "accept-ranges"),
        *("access-control-request-headers", "access-control-request-method", "age", "allow"),
        *("alt-svc", "authorization", "brokerproperties", "cache-control", "connection"),
        *("content-disposition", "content-encoding", "content-language", "content-length"),
        *("content-location", "content-md5", "content-range", "content-type", "cookie", "date"),
        *("dnt", "etag", "expect", "expires", "forwarded", "from", "host", "if-match"),
        *("if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive"),
        *("last-modified", "location", "max-forwards", "origin", "pragma", "proxy-authenticate"),
        *("proxy-authorization", "proxy-connection", "range", "referer", "retry-after", "server"),
        *("set-cookie", "servicebusauthorization", "servicebussupplementaryauthorization"),
        *("servicebusdlqsupplementaryauthorization", "te", "trailer", "transfer-encoding"),
        *("translate", "upgrade", "upgrade-insecure-requests", "user-agent", "vary", "via"),
        *("warning", "www-authenticate", "x-forwarded-for", "x-forwarded-host"),
        *("x-forwarded-port", "x-forwarded-proto", "x-ms-retrypolicy"),
    )
)
"""Fields of HTTP itself, of clients, proxies and this API (lower case): they are no properties."""


def read_fields(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the custom properties among the fields of a request.

    A field that stands twice is one property, its values joined as in RFC 9110, section 5.3.
    """
    found: dict[str, tuple[str, str]] = {}
    for name, text in fields:
        key = name.lower()
        if key in NOT_PROPERTIES or key.startswith("sec-"):
            continue
        if key in found:
            known, before = found[key]
            found[key] = known, f"{before}, {text}"
        else:
            found[key] = name, text
    # aiohttp has names of its own subclass of str, which has no type in AMQP.
    return {str(name): _value_of(readable(text)) for name, text in found.values()}


def readable(text: str) -> str:
    """Return a field's text, whose bytes are UTF-8, else ISO 8859-1."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    return text


def _value_of(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=double)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list) else typed(value)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def typed(value: Any) -> Any:
    """Return a scalar of JSON with its type in AMQP: a whole number is an int where it fits.

    A number that AMQP has no type for is text: it loses no digit.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if -_INT_MAX <= value < _INT_MAX:
        return Int(value)
    if -_LONG_MAX <= value < _LONG_MAX:
        return value
    return Ulong(value) if 0 <= value < _ULONG_MAX else str(value)


def written_name(name: str) -> str:
    """Return the field name of a property; what HTTP cannot take in a name is percent-encoded.

    So is the first letter of a name that HTTP or this API uses itself.
    """
    if name.lower() in NOT_PROPERTIES or name.lower().startswith("sec-"):
        return f"%{ord(name[0]):02X}{name[1:]}"
    if _TOKEN.fullmatch(name):
        return name
    return quote(name, safe=_TOKEN_MARKS) or "%00"


def written_value(value: Any) -> str:
    """Return a property's value as JSON in ASCII: a decimal as number, bytes as text in base64."""
    if isinstance(value, Timestamp):
        return json.dumps(http_date(int(value)))
    if isinstance(value, Decimal128):
        return str(_plain(value))
    if isinstance(value, bytes):
        return json.dumps(b64encode(value).decode())
    if isinstance(value, UUID):
        return json.dumps(str(value))
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return json.dumps({"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))])
    return json_text(value)


def json_text(value: Any) -> str:
    """Return a value of AMQP as JSON in ASCII; what JSON does not have becomes text."""
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):
        return json.dumps(str(value))


def _plain(value: Any) -> str:
    if isinstance(value, Decimal128):
        number = decode_decimal(b"\x94" + value)
        return str(value) if number is None else text_of(number)
    return shown_text(value) if isinstance(value, bytes) else str(value)


def http_date(utc_ms: int) -> str:
    """Return a time (UTC ms) as HTTP writes it, in whole seconds."""
    instant = datetime.fromtimestamp(readable_time_ms(utc_ms) // 1000, UTC)
    return format_datetime(instant, usegmt=True)
