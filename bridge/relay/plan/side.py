"""A side of the relay: one namespace, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A namespace; its repr shows no key.

    Attributes:
        name: what routes call it, before the first `/` of a place.
        id: what the marker on messages calls it; the host's name unless the file says another. Two
            ways to one namespace need the same id.
        host: the namespace's host name, with its port if it has one.
        connection_string: with a key or a signature; "" with `entra`.
        entra: the login is by tokens of Microsoft Entra ID.
        ca_file: certificates of authorities that may have signed the namespace's; "" for none.
        custom_endpoint_address: the host and port to connect to instead; "" for none.
        websocket: AMQP over WebSockets.
    """

    name: str
    id: str
    host: str
    connection_string: str = field(default="", repr=False)
    entra: bool = False
    ca_file: str = ""
    custom_endpoint_address: str = ""
    websocket: bool = False
