"""Requests to an entity's `$management`: what is checked of each, and how each is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.gateway.nodes import session_operations
from bridge.gateway.nodes.node_operation import Body, NodeOperation
from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.types import Int, Symbol

if TYPE_CHECKING:
    from bridge.gateway.nodes.request_links import LinkRequest, RequestLink


def body_of(
    link: RequestLink, path: EntityPath, request: LinkRequest, operation: NodeOperation
) -> Body:
    """Return the body of a request that the client may send.

    Raises:
        ServiceBusError: it may not, or the request makes no sense.
    """
    client, message = link.client, request.message
    client.grants.require(operation.right, path)
    if not isinstance(message.value, dict):
        raise ArgumentError("The body of the request is no map.")
    if not operation.in_session:
        return message.value
    link_name = message.application_properties.get("associated-link-name")
    return session_operations.of_holder(client, path, message.value, link_name)


def succeeded(request: LinkRequest) -> dict[str, Any]:
    """Return the application properties of the reply to a request that was carried out."""
    properties: dict[str, Any] = {"statusCode": Int(200), "statusDescription": "OK"}
    tracking_id = request.message.application_properties.get("com.microsoft:tracking-id")
    if isinstance(tracking_id, str):
        properties["com.microsoft:tracking-id"] = tracking_id
    return properties


def refuse(
    link: RequestLink, path: EntityPath, request: LinkRequest, error: ServiceBusError
) -> None:
    """Reply that a request is not carried out."""
    link.reply(request, succeeded(request) | describe(path, link, error), None)
    link.client.flush_soon()


def describe(path: EntityPath, link: RequestLink, error: ServiceBusError) -> dict[str, Any]:
    """Return the application properties of a reply that says what was wrong with the request."""
    condition, description = link.client.describe(error, str(path))
    link.client.log.info("management.refused", entity=str(path), reason=str(error))
    return {
        "statusCode": Int(error.status),
        "statusDescription": description,
        "errorCondition": Symbol(condition),
    }
