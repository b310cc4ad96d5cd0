"""The keys of a relay's file: what each takes, and what it means.

The documentation's table is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bridge.relay.plan.route import CREDIT, OUTAGE_S, SESSIONS_AT_ONCE


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the file.

    Attributes:
        name: as the file has it.
        kind: "text", "whole" or "number" (at least `least`, at most `most`), "flag", "texts" (a
            table of texts), or "choice" (one of `choices`).
        meaning: in one sentence; Markdown.
        example: as it stands in a file, with the key.
        default: in words; "" for a key that must be there, or has none.
    """

    name: str
    kind: str
    meaning: str
    example: str
    default: str = ""
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()

    def fault_of(self, value: Any) -> str:
        """Return what is wrong with a value; "" for nothing."""
        match self.kind:
            case "flag":
                return "" if isinstance(value, bool) else "it takes true or false"
            case "choice":
                if value in self.choices:
                    return ""
                return "it takes " + " or ".join(f'"{each}"' for each in self.choices)
            case "texts":
                is_good = isinstance(value, dict) and all(map(_is_text, value.values()))
                return "" if is_good else 'it takes a table of texts: { "this" = "that" }'
            case "text":
                return "" if _is_text(value) else "it takes a text that is not empty"
        kinds: tuple[type, ...] = (int,) if self.kind == "whole" else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most:
            return ""
        what = "a whole number" if self.kind == "whole" else "a number"
        return f"it takes {what} from {self.least:g} to {self.most:,.0f}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _by_name(*keys: Key) -> dict[str, Key]:
    return {each.name: each for each in keys}


SOURCES: Final = ("env", "file", "connection-string", "host")
"""Where a side's login comes from: one of these is given."""

SIDE: Final = _by_name(
    Key(
        "env",
        "text",
        "the environment variable with the connection string",
        'env = "AZURE_SERVICE_BUS"',
    ),
    Key(
        "file",
        "text",
        "the file with the connection string, from the folder of this file",
        'file = "/run/secrets/azure"',
    ),
    Key(
        "connection-string",
        "text",
        "the connection string itself; refused without `--allow-inline-secrets`",
        'connection-string = "Endpoint=sb://shop.servicebus.windows.net;SharedAccessKeyName=...;SharedAccessKey=..."',
    ),
    Key(
        "host",
        "text",
        "the namespace's host, with a login by Microsoft Entra ID",
        'host = "shop.servicebus.windows.net"',
    ),
    Key(
        "id",
        "text",
        "what the marker on messages calls the namespace; to be the same in all files, for ever",
        'id = "shop"',
        "the host's name, with its port if it has one; wanted of a loopback address, and of a name "
        "without a dot: other machines have others of that name",
    ),
    Key(
        "ca-file",
        "text",
        "certificates (PEM) of authorities that may have signed the namespace's, from the folder "
        "of this file",
        'ca-file = "ca.pem"',
        "the system's",
    ),
    Key(
        "custom-endpoint-address",
        "text",
        "where to connect to instead, as the SDKs take it",
        'custom-endpoint-address = "gateway:5671"',
        "the namespace's host",
    ),
    Key("websocket", "flag", "AMQP over WebSockets, at port 443", "websocket = true", "false"),
)
"""The keys of a table `[sides.NAME]`."""

ROUTE: Final = _by_name(
    Key(
        "name",
        "text",
        "what metrics, logs and `else` call the route",
        'name = "orders"',
        "the text of `from`",
    ),
    Key(
        "from",
        "text",
        "SIDE/ENTITY: a queue, a subscription, or the dead-letter queue of one; one `*` stands for "
        "any part of a name, and needs the right Manage",
        'from = "azure/events/Subscriptions/audit"',
    ),
    Key(
        "to",
        "text",
        "SIDE/ENTITY: a queue or a topic; `*` alone is the source's name, and within a name what "
        "the `*` of `from` stands for",
        'to = "local/*"',
    ),
    Key(
        "filter",
        "text",
        "which messages go, in the SQL of [rules](filters.md)",
        "filter = \"colour = 'red'\"",
        "all",
    ),
    Key(
        "else",
        "text",
        'what becomes of the others: "complete", "dead-letter", or the name of a route of the same '
        "`from`, which is asked next",
        'else = "dead-letter"',
        "wanted with a filter",
    ),
    Key("rate", "number", "messages a second at most", "rate = 500", "no limit", 0.01, 1_000_000),
    Key(
        "order",
        "choice",
        '"entity": all messages in their order, by one process at a time; "none": any number of '
        "processes share the route, and only a session has its order",
        'order = "entity"',
        '"none"',
        choices=("none", "entity"),
    ),
    Key(
        "on-refused",
        "choice",
        "what becomes of the route, or of the message, that the target refuses for good",
        'on-refused = "dead-letter"',
        '"stop"',
        choices=("stop", "dead-letter"),
    ),
    Key(
        "duplicates",
        "choice",
        '"accept": a message may come twice at the target; "drop": of equal MessageIds within the '
        "target's window one comes; wanted by `check` where Azure leaves no third way",
        'duplicates = "accept"',
        "",
        choices=("accept", "drop"),
    ),
    Key(
        "states",
        "flag",
        "the states of sessions go along, each before the messages of its session; one without "
        "messages within 30 s, or when nobody has its session any more",
        "states = true",
        "false",
    ),
    Key(
        "sessions",
        "whole",
        "sessions that are held at the same time",
        "sessions = 16",
        str(SESSIONS_AT_ONCE),
        1,
        1_000,
    ),
    Key(
        "outage_s",
        "number",
        "how long locks are renewed while the target is away; then the messages are given back",
        "outage_s = 30",
        f"{OUTAGE_S:g}",
        0,
        3_600,
    ),
    Key(
        "credit",
        "whole",
        "messages that may be received and not confirmed at the same time",
        "credit = 200",
        f"{CREDIT}",
        1,
        50_000,
    ),
    Key(
        "reply-to",
        "texts",
        "addresses in ReplyTo, and what they become; others stay",
        'reply-to = { "replies" = "answers" }',
        "none",
    ),
)
"""The keys of a table `[[routes]]`."""

FILE: Final = _by_name(
    Key(
        "control",
        "text",
        "SIDE/QUEUE: the queue of `busbridge relay init`; its sessions say who has a route of "
        'order = "entity"',
        'control = "local/busbridge-relay"',
    )
)
"""The keys outside of all tables."""
