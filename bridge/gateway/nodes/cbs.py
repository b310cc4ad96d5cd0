"""`$cbs`, claims-based security: a client puts a token, which holds for the whole connection.

A token for an entity that does not exist is answered with 404, as at Azure, and an issuer's token
that gives no right there with 401. The Python SDK alone shows nothing of these answers, not even
the entity's name. So its token is accepted, and the attach refused, in words that the SDK passes
on. The bridge knows the Python SDK by the product in the
client's `open`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.gateway.client.texts import not_found, tracked
from bridge.model.access_rules import path_segments
from bridge.model.claims import Claims, RefusedBearer, audience_path, cause_of
from bridge.model.errors import ArgumentError, NotImplementedHere, ServiceBusError, Unauthorized
from bridge.model.issuers.web_token import KeyAwaited
from bridge.model.name import parse_path
from bridge.wire.amqp10.types import Int, Symbol

if TYPE_CHECKING:
    from bridge.gateway.nodes.request_links import LinkRequest, RequestLink

ADDRESS = "$cbs"


def on_request(link: RequestLink, request: LinkRequest) -> None:
    """Answer a `$cbs` request, at once unless the key of the token's signature has to be fetched.

    A client may attach without waiting for the answer.
    """
    put = _Put(link, request)
    try:
        put.verify()
    except KeyAwaited as awaited:
        link.client.links.spawn(link.link, put.verify_later(awaited))


class _Put:
    """A request to put a token.

    `turn` is its place among the connection's tokens: one that waits for a key does not replace one
    that came after it.
    """

    def __init__(self, link: RequestLink, request: LinkRequest) -> None:
        self._link = link
        self._request = request
        self._client = link.client
        self._turn = link.client.next_turn()
        self._audience = request.message.application_properties.get("name")

    def verify(self) -> None:
        """Verify the token and answer.

        Raises:
            KeyAwaited: the token is not answered yet.
        """
        operation = self._request.message.application_properties.get("operation")
        if operation != "put-token":
            text = f"The operation {operation!r} is not implemented at $cbs."
            self._reply(501, text, _NOT_IMPLEMENTED)
            return
        try:
            self._take(self._claims())
        except ServiceBusError as error:
            self._refuse(error)

    async def verify_later(self, awaited: KeyAwaited) -> None:
        """Verify the token and answer, once the key of its signature was looked for."""
        try:
            await self._client.access.next_keys(awaited)
            try:
                self._take(self._claims())
            except KeyAwaited as error:
                raise error.refusal from None
        except ServiceBusError as error:
            self._refuse(error)
        self._client.flush_soon()

    def _claims(self) -> Claims:
        token = self._request.message.value
        if not isinstance(self._audience, str):
            raise ArgumentError("put-token needs the application property 'name', a string.")
        if not isinstance(token, str):
            raise Unauthorized("MalformedToken: The body of put-token is no string.")
        scope = path_segments(audience_path(self._audience))
        claims = self._client.access.verify(token, scope)
        try:
            claims.check_audience(self._audience)
        except RefusedBearer as error:
            if not self._client.is_python_sdk:
                raise
            self._log(error)
        return claims

    def _take(self, claims: Claims) -> None:
        assert isinstance(self._audience, str)
        path = audience_path(self._audience)
        if not self._client.is_python_sdk and not _exists(self._link, path):
            name = self._client.settings.namespace_name
            text = not_found(self._client.resource_of(path))
            self._reply(404, tracked(text, name, path), "amqp:not-found")
            return
        self._client.put_claims(path, claims, self._turn)
        self._reply(202, "Accepted", "")

    def _log(self, error: ServiceBusError) -> None:
        self._client.log.info("token.refused", audience=self._audience, reason=cause_of(error))

    def _refuse(self, error: ServiceBusError) -> None:
        self._log(error)
        self._client.note_refused()
        name = self._client.settings.namespace_name
        self._reply(error.status, tracked(str(error), name), error.condition)

    def _reply(self, status: int, description: str, condition: str) -> None:
        properties: dict[str, Any] = {"status-code": Int(status), "status-description": description}
        if condition:
            properties["error-condition"] = Symbol(condition)
        self._link.reply(self._request, properties, None)


_NOT_IMPLEMENTED = "amqp:not-implemented"


def _exists(link: RequestLink, path: str) -> bool:
    if not path or path.lower() == "$management":
        return True
    try:
        link.client.namespace.entity(parse_path(path))
    except NotImplementedHere:
        return True  # the attach is refused, in words that SDKs pass on
    except ServiceBusError as error:
        if error.status == 404 or isinstance(error, ArgumentError):
            return False
        raise
    return True
