"""Connection strings as the library takes them: Azure's, or RabbitMQ's URL instead."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.client.address import is_url
from bridge.client.mapping import Mapped
from bridge.model import connection_string as azure


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
    try:
        found = azure.read(text)
    except ValueError as error:
        raise ValueError(f"{str(error).rstrip('.')}, or give RabbitMQ's URL.") from None
    if not found.key and not found.signature:
        raise ValueError("Either SharedAccessKey or SharedAccessSignature is needed, not both.")
    return ServiceBusConnectionStringProperties(
        fully_qualified_namespace=found.authority,
        endpoint=f"sb://{found.authority}/",
        entity_path=found.entity_path,
        shared_access_signature=found.signature,
        shared_access_key_name=found.key_name,
        shared_access_key=found.key,
    )
