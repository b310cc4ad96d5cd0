"""Rights of HTTP requests: a request's tokens, verified."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aiohttp import web

from bridge.access.access import Access
from bridge.model.access import HTTP_GRACE_S
from bridge.model.claims import Claims, cause_of, missing_right, token_in
from bridge.model.entity import Right
from bridge.model.errors import ServiceBusError, Unauthorized
from bridge.model.name import EntityPath

AUTHORIZATION = "Authorization"
_SUPPLEMENTARY = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""Headers with a token for what is forwarded to."""

SUB_CODE = "SubCode=40100"
"""The beginning of what Azure says of a right that is missing at a subscription."""

_MISSING = {
    "GET": "Manage,EntityRead claims required for this operation.",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite.",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete.",
}
"""What Azure says of a right that is missing (its own tests of the Go module look for it)."""


class RequestRights:
    """The rights of one request, as the rules are at each question.

    Args:
        access: reckons rights.
        claims: what the request's token gives.
        targets: what the tokens for what is forwarded to give, or why they are refused, by header.
        host: the host in the request, for error texts.
        generation: that of the rules when the first of the tokens was verified.
    """

    def __init__(
        self,
        access: Access,
        claims: Claims,
        targets: Mapping[str, Claims | ServiceBusError],
        host: str,
        generation: int,
    ) -> None:
        self._access = access
        self._generation = generation
        self._claims = claims
        self._targets = targets
        self._host = host

    def check(self, method: str, path: str, operation: str, *rights: Right) -> None:
        """Raise unless the token gives one of the rights at the path.

        Args:
            operation: Azure's name of what is done with a subscription; "" for anything else.

        Raises:
            Unauthorized: the token gives none of them; the text is Azure's, for the operation or
                the method.
        """
        self._reckon()
        if any(self._claims.allows(right, path) for right in rights):
            return
        if operation:
            raise Unauthorized(
                f"{SUB_CODE}: Unauthorized : Unauthorized access for '{operation}' operation on "
                f"endpoint 'sb://{self._host}/{path}'."
            )
        raise Unauthorized(_MISSING[method])

    def covers(self, path: str) -> bool:
        """Return whether the token gives any right at the path."""
        self._reckon()
        return self._claims.covers(path)

    def require(self, right: Right, path: EntityPath) -> None:
        """Raise unless the token gives a right to messages of an entity.

        Raises:
            Unauthorized: it does not.
        """
        self._reckon()
        if not self._claims.allows(right, path):
            raise missing_right(right, f"sb://{self._host}/{path}")

    def check_target(self, header_of: str, path: str) -> None:
        """Raise unless the client may send to the entity that it wants to forward to.

        Args:
            header_of: `ForwardTo` or `ForwardDeadLetteredMessagesTo`.
            path: the path of the target of forwarding.

        Raises:
            Unauthorized: neither the request's token nor the token for the target gives the right.
        """
        self._reckon()
        if self._claims.allows(Right.SEND, path):
            return
        found = self._targets.get(_SUPPLEMENTARY[header_of])
        if isinstance(found, ServiceBusError):
            raise found
        if found is None or not found.allows(Right.SEND, path):
            raise missing_right(Right.SEND, f"sb://{self._host}/{path}")

    def _reckon(self) -> None:
        """Follow a change of the rules since the last question."""
        if self._generation == self._access.generation:
            return
        self._generation = self._access.generation
        self._claims = self._access.reckoned(self._claims, ())
        self._targets = {
            header: found
            if isinstance(found, ServiceBusError)
            else self._access.reckoned(found, ())
            for header, found in self._targets.items()
        }


async def rights_of(
    access: Access,
    request: web.Request,
    log: logging.Logger,
    *,
    grace_s: float = HTTP_GRACE_S,
) -> RequestRights:
    """Return the rights of a request.

    Args:
        log: is told of a token that is refused.
        grace_s: how long past its expiry a shared access signature is accepted.

    Raises:
        Unauthorized, ServerBusy: the request has no token, or the token is refused.
    """
    generation = access.generation  # the rules may change while a token waits for a key
    try:
        claims = await _verified(access, request, AUTHORIZATION, grace_s)
    except ServiceBusError as error:
        if AUTHORIZATION in request.headers:
            log.info(
                "token.refused peer=%s audience=%r reason=%r",
                *(request.remote, f"{request.host}{request.path}", cause_of(error)),
            )
        raise
    targets: dict[str, Claims | ServiceBusError] = {}
    for header in _SUPPLEMENTARY.values():
        if header in request.headers:
            try:
                targets[header] = await _verified(access, request, header, grace_s)
            except ServiceBusError as error:
                targets[header] = error
    return RequestRights(access, claims, targets, request.host, generation)


async def _verified(access: Access, request: web.Request, header: str, grace_s: float) -> Claims:
    """Return the claims of the token in a header, with the word `Bearer` or without it."""
    token = token_in(request.headers.get(header, ""))
    if not token:
        raise Unauthorized(f"MalformedToken: The header {header} is missing.")
    return await access.verified(token, grace_s=grace_s)
