"""The target of a request to the REST API of messages, read from its method and path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote
from uuid import UUID

from bridge.model.errors import ArgumentError, MessageNotFound
from bridge.model.name import EntityPath, parse_path

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Verb(Enum):
    """What a request asks for, named as in the REST reference."""

    SEND = "Send Message"
    PEEK_LOCK = "Peek-Lock Message"
    RECEIVE_AND_DELETE = "Receive and Delete Message"
    UNLOCK = "Unlock Message"
    DELETE = "Delete Message"
    RENEW = "Renew-Lock for a Message"


_OF_HEAD = {"POST": Verb.PEEK_LOCK, "DELETE": Verb.RECEIVE_AND_DELETE}
_OF_LOCKED = {"POST": Verb.RENEW, "PUT": Verb.UNLOCK, "DELETE": Verb.DELETE}


@dataclass(frozen=True, slots=True)
class RestTarget:
    """The target of a request.

    Attributes:
        address: the entity or sub-queue, as the client wrote it.
        token: the text of the lock token; "" for other verbs.
    """

    verb: Verb
    address: str
    token: str = ""

    @property
    def path(self) -> EntityPath:
        """The entity or sub-queue.

        Raises:
            ArgumentError: the address names none.
        """
        path = parse_path(self.address)
        if path.is_management:
            raise ArgumentError(f"'{self.address}' has no messages.")
        return path

    @property
    def lock_token(self) -> UUID:
        """The lock token.

        Raises:
            MessageNotFound: the text is none.
        """
        if not _TOKEN.fullmatch(self.token):
            raise MessageNotFound(f"'{self.token[:60]}' is no lock token: it is a UUID.")
        return UUID(self.token)


def parse_target(method: str, raw_path: str) -> RestTarget | None:
    """Return the target of a request from its percent-encoded path; `None` for another API.

    An entity's name may have slashes, so the path is read from the right; its words are not
    case-sensitive. In the path of a locked message the part before the token, a message id or a
    sequence number, is not looked at: the token says it all. A PUT or DELETE with another last part
    than a token is about an entity of such a name.

    Raises:
        ArgumentError: the path is not UTF-8.
    """
    parts = raw_path.partition("?")[0].strip("/").split("/")
    try:
        names = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        raise ArgumentError("The path of the request is not UTF-8.") from None
    match [name.lower() for name in names]:
        case [_, *_, "messages"] if method == "POST":
            return RestTarget(Verb.SEND, "/".join(names[:-1]))
        case [_, *_, "messages", "head"] if method in _OF_HEAD:
            return RestTarget(_OF_HEAD[method], "/".join(names[:-2]))
        case [_, *_, "messages", _, token] if method in _OF_LOCKED:
            if method == "POST" or _TOKEN.fullmatch(token):
                return RestTarget(_OF_LOCKED[method], "/".join(names[:-3]), token)
    return None
