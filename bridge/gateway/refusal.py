"""Refusal of a link with Azure's condition and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.gateway import texts
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.model.errors import EntityNotFound, ServiceBusError

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection


def refuse(
    connection: Connection, link: IncomingLink | OutgoingLink, entity: str, error: ServiceBusError
) -> None:
    """Refuse a link to an entity; `entity` is the client's name for the entity."""
    if isinstance(error, EntityNotFound):
        text = texts.not_found(connection.resource_of(entity))
        name = connection.gateway.settings.namespace_name
        link.refuse(error.condition, texts.tracked(text, name, entity))
    else:
        link.refuse(*connection.describe(error, entity))
    connection.log.info("attach.refused", entity=entity, reason=str(error))
