"""`$cbs`, claims-based security: a client puts a token, which holds for the whole connection.

A token for an entity that does not exist is answered with 404, as at Azure. The Python SDK alone
shows nothing of that answer, not even the entity's name. So its token is accepted, and the attach
refused, in words that the SDK passes on. The bridge knows the Python SDK by the product in the
client's `open`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.gateway.texts import not_found, tracked
from bridge.model.access import cause_of, verify_token
from bridge.model.errors import ArgumentError, NotImplementedHere, ServiceBusError, Unauthorized
from bridge.model.name import parse_path, without_host
from bridge.wire.amqp10.types import Int, Symbol

if TYPE_CHECKING:
    from bridge.gateway.nodes import Request, RequestLink

ADDRESS = "$cbs"


def on_request(link: RequestLink, request: Request) -> None:
    """Answer a `$cbs` request."""
    status, description, condition = _answer(link, request)
    properties: dict[str, Any] = {"status-code": Int(status), "status-description": description}
    if condition:
        properties["error-condition"] = Symbol(condition)
    link.reply(request, properties, None)


def _answer(link: RequestLink, request: Request) -> tuple[int, str, str]:
    """Return status, description and condition of the reply."""
    connection = link.connection
    name = connection.gateway.settings.namespace_name
    message = request.message
    fields = message.application_properties
    operation, audience = fields.get("operation"), fields.get("name")
    if operation != "put-token":
        return 501, f"The operation {operation!r} is not implemented at $cbs.", _NOT_IMPLEMENTED
    try:
        if not isinstance(audience, str):
            raise ArgumentError("put-token needs the application property 'name', a string.")
        if not isinstance(message.value, str):
            raise Unauthorized("MalformedToken: The body of put-token is no string.")
        claims = verify_token(message.value, connection.gateway.rules, connection.gateway.now_s())
        claims.check_audience(audience)
        path = without_host(audience)
        if not connection.is_python_sdk and not _exists(link, path):
            text = not_found(connection.resource_of(path))
            return 404, tracked(text, name, path), "amqp:not-found"
        connection.authentication.put_claims(path, claims)
    except ServiceBusError as error:
        connection.log.info("token.refused", audience=audience, reason=cause_of(error))
        return error.status, tracked(str(error), name), error.condition
    return 202, "Accepted", ""


_NOT_IMPLEMENTED = "amqp:not-implemented"


def _exists(link: RequestLink, path: str) -> bool:
    if not path or path.lower() == "$management":
        return True
    try:
        link.connection.gateway.namespace.entity(parse_path(path))
    except NotImplementedHere:
        return True  # the attach is refused, in words that SDKs pass on
    except ServiceBusError as error:
        if error.status == 404 or isinstance(error, ArgumentError):
            return False
        raise
    return True
