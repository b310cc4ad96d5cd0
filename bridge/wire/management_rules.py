"""How rules of subscriptions are written in `$management`: the descriptors and keys of both ends.

The formats were observed in the JavaScript client's traffic; for .NET they follow the client's
source. The descriptor of a list is a number: clients know no other form.
"""

from __future__ import annotations

from typing import Final

RULE: Final = 0x13700000004
EMPTY_ACTION: Final = 0x13700000005
SQL_ACTION: Final = 0x13700000006
SQL_FILTER: Final = 0x1370000006
TRUE_FILTER: Final = 0x1370000007
FALSE_FILTER: Final = 0x1370000008
CORRELATION_FILTER: Final = 0x1370000009
"""Descriptors of rules, actions and filters; those of filters have one digit less."""

CORRELATION_KEYS: Final = {
    "correlation-id": "CorrelationId",
    "message-id": "MessageId",
    "to": "To",
    "reply-to": "ReplyTo",
    "label": "Label",
    "session-id": "SessionId",
    "reply-to-session-id": "ReplyToSessionId",
    "content-type": "ContentType",
}
"""Key of a request -> Azure's name of the field, in the order of the answer's list."""
