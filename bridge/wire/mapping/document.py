"""The mapping as a page for people, made from the tables that the code runs on.

`python -m bridge.wire.mapping.document` prints it; a test compares it with docs/mapping.md.
"""

from __future__ import annotations

from bridge.wire.mapping.fields import FROM_AMQP
from bridge.wire.mapping.names import BASIC_PROPERTIES, HEADER_PROPERTIES, PROPERTY_NAMES

_LETTERS = {
    "V": "void",
    "t": "boolean",
    "B": "unsigned byte",
    "b": "signed byte",
    "u": "unsigned short",
    "s": "signed short",
    "i": "unsigned int",
    "I": "signed int",
    "l": "signed long",
    "f": "float",
    "d": "double",
    "S": "long string",
    "x": "byte array",
    "T": "timestamp (s)",
}

_AZURE = {
    "message-id": "MessageId",
    "to": "To",
    "subject": "Subject (Label)",
    "reply-to": "ReplyTo",
    "correlation-id": "CorrelationId",
    "content-type": "ContentType",
    "group-id": "SessionId",
    "reply-to-group-id": "ReplyToSessionId",
}

_INTRODUCTION = """\
# Messages on both sides

What an SDK's message looks like to a RabbitMQ client, and a RabbitMQ client's message to an SDK. Generated from the code
(`python -m bridge.wire.mapping.document > docs/mapping.md`).

What AMQP 0-9-1 can say exactly stands where a RabbitMQ user expects it. When a section of the AMQP 1.0 message holds something
that it cannot say (marked "readable" below), the whole section travels as it came in the header `x-busbridge-sections` and wins on the
way back to an SDK, so every type survives from SDK to SDK; the readable form beside it is for native consumers.
"""

_REST = """\
## Header, annotations, body

| AMQP 1.0 | AMQP 0-9-1 |
|---|---|
| header.ttl, or absolute-expiry-time less creation-time above 2^32-1 ms | property `expiration` and header `x-opt-time-to-live` (ms), both set at numbering |
| header.priority | header `x-opt-priority`; never a RabbitMQ priority, which would break arrival order |
| header.delivery-count | RabbitMQ's `x-delivery-count` |
| header.durable | always persistent |
| annotation `x-opt-sequence-number` | header of that name (signed long) |
| annotation `x-opt-enqueued-time` | header of that name (UTC ms, signed long) |
| annotation `x-opt-scheduled-enqueue-time` | header of that name (UTC ms; a native publisher may also write a timestamp) |
| annotations `x-opt-partition-key`, `x-opt-via-partition-key` | headers of those names |
| other annotations, delivery annotations, footer | in `x-busbridge-sections` |
| one Data section | the body |
| several Data sections, amqp-sequence, amqp-value | the sections as encoded; header `x-busbridge-body` is `sections` |

## A native publisher's message

| AMQP 0-9-1 | what an SDK sees |
|---|---|
| `message_id` absent | MessageId is the sequence number in hexadecimal (the JavaScript SDK cannot settle without one) |
| `timestamp` | creation-time |
| `app_id` | application property `x-basic-app-id` |
| `user_id` | kept in header `x-basic-user-id` |
| `expiration` | TimeToLive; "0" keeps RabbitMQ's meaning |
| `priority` | header.priority; order is arrival order |
| headers `x-death`, `x-first-death-*`, `x-last-death-*`, `x-delivery-count`, `x-acquired-count`, `CC`, `BCC`, `x-stream-filter-value`, `x-opt-sequence-number`, `x-opt-enqueue-sequence-number`, `x-opt-enqueued-time`, `x-busbridge-*` | taken off: only a broker or the bridge may say these. `x-busbridge-sections` and `x-busbridge-body` stay, so that a message can be moved from queue to queue, and are left out when they hold anything but sections |
| header `x-opt-time-to-live`, negative | no TTL of its own |
| larger than the entity takes | a dead letter, `MessageSizeExceeded` |
| published into `$deferred` or a bucket | a dead letter, `MisplacedMessage` |
| text that is no UTF-8 | U+FFFD where it is none |
| header `x-opt-session-id`, `x-opt-reply-to-session-id`, `x-opt-to`, `x-opt-partition-key`, `x-opt-via-partition-key` that is no text, `x-opt-group-sequence` that is no whole number | left out: strict clients refuse the message for it |
| a header table, a header array | text, in JSON: .NET receives nothing at all beside a property that is a map or a list |
"""


def document() -> str:
    """Return the page in Markdown."""
    lines = [
        _INTRODUCTION,
        "## Properties\n",
        "| AMQP 1.0 property | Azure's name | AMQP 0-9-1 |",
        "|---|---|---|",
    ]
    for name in PROPERTY_NAMES:
        place = (
            f"property `{BASIC_PROPERTIES[name]}`"
            if name in BASIC_PROPERTIES
            else f"header `{HEADER_PROPERTIES[name]}`"
        )
        lines.append(f"| {name} | {_AZURE.get(name, '')} | {place} |")
    lines += [
        "",
        "An id that is no string (uuid, ulong, binary) is readable as text.",
        "",
        "## Types of application properties\n",
        "| AMQP 1.0 type | AMQP 0-9-1 field | |",
        "|---|---|---|",
    ]
    seen: dict[str, None] = {}
    for name, letter, is_exact, _ in FROM_AMQP.values():
        grade = "exact" if is_exact else "readable"
        if name == "timestamp":
            grade = "exact in whole seconds, else readable"
        if name in ("float", "double"):
            grade = (
                "exact; NaN and infinities, which RabbitMQ has not, only in `x-busbridge-sections`"
            )
        seen[f"| {name} | {_LETTERS[letter]} (`{letter}`) | {grade} |"] = None
    lines += seen
    lines += [
        "| decimal32, decimal64, decimal128, list, map, array, described | none | only in "
        "`x-busbridge-sections` |",
        "",
        _REST,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(document(), end="")
