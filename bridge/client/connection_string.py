"""Parsing of connection strings: Azure's, or RabbitMQ's URL instead."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from bridge.client.address import is_url
from bridge.client.mapping import Mapped

_MALFORMED = (
    "The connection string is blank or malformed: give name=value pairs with semicolons between "
    "them, an Endpoint among them, or RabbitMQ's URL."
)


@dataclass(kw_only=True)
class ServiceBusConnectionStringProperties(Mapped):
    """The parts of a connection string.

    Attributes:
        fully_qualified_namespace: the host; for RabbitMQ's URL the whole URL, which a client takes
            as a namespace.
        endpoint: `sb://HOST/`, or RabbitMQ's URL.
        entity_path: the entity that the string is for; `None` for any.
    """

    fully_qualified_namespace: str
    endpoint: str
    entity_path: str | None = None
    shared_access_signature: str | None = None
    shared_access_key_name: str | None = None
    shared_access_key: str | None = None

    def __repr__(self) -> str:
        return f"ServiceBusConnectionStringProperties(entity_path={self.entity_path!r})"


def parse_connection_string(conn_str: str) -> ServiceBusConnectionStringProperties:
    """Return the parts of a connection string.

    Raises:
        ValueError: malformed.
    """
    text = conn_str.strip()
    if is_url(text):
        return ServiceBusConnectionStringProperties(fully_qualified_namespace=text, endpoint=text)
    pairs = [pair.partition("=") for pair in text.rstrip(";").split(";")]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError(_MALFORMED)
    found = {name: value for name, _, value in pairs}
    signatures = [value for name, value in found.items() if name.lower() == "sharedaccesssignature"]
    name, key = found.get("SharedAccessKeyName"), found.get("SharedAccessKey")
    host = _host(found.get("Endpoint"))
    _check_login(name, key, signatures)
    return ServiceBusConnectionStringProperties(
        fully_qualified_namespace=host,
        endpoint=f"sb://{host}/",
        entity_path=found.get("EntityPath"),
        shared_access_signature=signatures[0] if signatures else None,
        shared_access_key_name=name,
        shared_access_key=key,
    )


def _host(endpoint: str | None) -> str:
    if not endpoint:
        raise ValueError(_MALFORMED)
    host = urlsplit(endpoint).netloc.strip()
    if not host:
        raise ValueError("The Endpoint of the connection string is no URL: sb://HOST/.")
    return host


def _check_login(name: str | None, key: str | None, signatures: list[str]) -> None:
    if bool(name) != bool(key):
        raise ValueError("SharedAccessKeyName and SharedAccessKey go together.")
    if bool(key) == bool(signatures):
        raise ValueError("Either SharedAccessKey or SharedAccessSignature is needed, not both.")
