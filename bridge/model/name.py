"""Names and paths of entities.

A path is a link address as a client writes it: `orders`, `orders/$DeadLetterQueue`,
`events/Subscriptions/audit`, `orders/$management`, with or without scheme and host.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum

from bridge.model.errors import ArgumentError

PATH_LENGTH_MAX = 260
"""Characters in the name of a queue or topic (Service Bus quotas)."""

SHORT_NAME_LENGTH_MAX = 50
"""Characters in the name of a subscription, rule or namespace (Service Bus quotas)."""

CLIENT_ID_LENGTH_MAX = 100
"""Characters in the id of a JMS client that has a durable subscription (this bridge's limit)."""

SHORT_ID_BYTES = 6
"""Length of a short id. Two of a topic's 2,000 subscriptions share one in one of 10^8 topics."""

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._~/\-]*[A-Za-z0-9_~\-])?")
"""Names that Azure accepts in practice: libraries make `contoso~fault--contoso~order--` of generic
types, and a subscription may begin and end with `_` (validators of Azure's Terraform provider)."""

_CLIENT_SCOPED = re.compile(r"(?P<name>.*)\$(?P<client>[^$/]+)\$D", re.IGNORECASE)
"""The durable subscription of one JMS client, alone or at the end of its path."""

_HOST = re.compile(r"^[a-z][a-z0-9+.\-]*://[^/]*", re.IGNORECASE)


class SubQueue(Enum):
    """The hidden queues of an entity."""

    NONE = ""
    DEAD_LETTER = "$deadletterqueue"
    TRANSFER_DEAD_LETTER = "$transfer/$deadletterqueue"


@dataclass(frozen=True, slots=True)
class EntityPath:
    """The entity and sub-queue that an address names. Names keep the client's case.

    Attributes:
        entity: `orders`, or `events/Subscriptions/audit` for a subscription.
        sub_queue: the entity itself or one of its sub-queues.
        is_management: the address ends in `$management`.
    """

    entity: str
    sub_queue: SubQueue = SubQueue.NONE
    is_management: bool = False

    @property
    def key(self) -> str:
        """The entity's identity: names are case-insensitive in Service Bus."""
        return self.entity.lower()

    def __str__(self) -> str:
        return self.entity + ("/" + self.sub_queue.value if self.sub_queue.value else "")


def short_id(incarnation: str) -> bytes:
    """Return the short id of an entity's incarnation."""
    return hashlib.sha256(incarnation.encode()).digest()[:SHORT_ID_BYTES]


def check_entity_name(name: str, *, length_max: int = PATH_LENGTH_MAX, what: str = "entity") -> str:
    """Return `name` if Service Bus takes it as an entity's name.

    Args:
        what: is named, for the error.

    Raises:
        ArgumentError: the name is empty, too long, or has characters that Service Bus refuses.
    """
    if len(name) > length_max or not _NAME.fullmatch(name) or "//" in name:
        raise ArgumentError(
            f"The {what} name {name!r} is not valid: 1 to {length_max} letters, digits, '.', '-', "
            "'_', '~' or '/', beginning with a letter, a digit or '_' and ending with none of "
            "'.' and '/'."
        )
    return name


def client_scoped(name: str, client_id: str) -> str:
    """Return the name, as Azure writes it, of the durable subscription of one JMS client."""
    return f"{name}${client_id}$D"


def check_subscription_name(name: str) -> str:
    """Return `name` if Service Bus takes it as a subscription's; a JMS client's ends with its id.

    Raises:
        ArgumentError: as `check_entity_name`.
    """
    scoped = _CLIENT_SCOPED.fullmatch(name)
    if scoped:
        check_entity_name(scoped["client"], length_max=CLIENT_ID_LENGTH_MAX, what="client's")
    own = scoped["name"] if scoped else name
    check_entity_name(own, length_max=SHORT_NAME_LENGTH_MAX, what="subscription")
    return name


DEFAULT_RULE_NAME = "$Default"
"""Name of the rule that Service Bus gives a subscription; no other begins with a `$`."""


def same_name(one: str, other: str) -> bool:
    """Whether two names are one: Service Bus's names of entities and rules have no case."""
    return one.lower() == other.lower()


def check_rule_name(name: str) -> str:
    """Return `name` if Service Bus takes it as a rule's name, such as `$Default` in any case.

    Raises:
        ArgumentError: as `check_entity_name`.
    """
    if same_name(name, DEFAULT_RULE_NAME):
        return name
    return check_entity_name(name, length_max=SHORT_NAME_LENGTH_MAX, what="rule")


def without_host(address: str) -> str:
    """Return an address or URL without scheme, host and surrounding slashes."""
    return _HOST.sub("", address).strip("/")


def parse_path(address: str) -> EntityPath:
    """Return the path of a link address; scheme, host and leading slashes are ignored.

    Raises:
        ArgumentError: the entity part is not a valid name.
    """
    path = without_host(address)
    is_management = path.lower().endswith("/$management")
    if is_management:
        path = path[: -len("/$management")]
    sub_queue = SubQueue.NONE
    for candidate in (SubQueue.TRANSFER_DEAD_LETTER, SubQueue.DEAD_LETTER):
        if path.lower().endswith("/" + candidate.value):
            path, sub_queue = path[: -len(candidate.value) - 1], candidate
            break
    scoped = _CLIENT_SCOPED.fullmatch(path)
    check_entity_name(scoped["name"] if scoped else path)
    return EntityPath(path, sub_queue, is_management)
