"""The administration API over HTTP, for the administration clients of the Azure SDKs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bridge.access.access import Access
from bridge.admin.answers import Asked, HttpAnswer, answered
from bridge.admin.operations import Operations
from bridge.admin.request_rights import rights_of
from bridge.admin.target import parse_target
from bridge.model.errors import ArgumentError
from bridge.wire.atom.documents import BODY_BYTES_MAX

_log = logging.getLogger("busbridge.administration")

_OLD = '110 - "Response is Stale"'
"""The header `Warning` of an answer with old counts (RFC 7234, 5.5.1)."""

_BROKEN = "The rest of the request did not come, or is malformed."


class Service:
    """Answers HTTP requests to the administration API.

    Args:
        operations: carry the requests out.
        access: verifies tokens.
        on_authorized: called with each request whose token is valid, whatever its rights.
    """

    def __init__(
        self,
        operations: Operations,
        access: Access,
        *,
        on_authorized: Callable[[web.Request], None],
    ) -> None:
        self._operations = operations
        self._access = access
        self._on_authorized = on_authorized

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        answer = await answered(self._answer(request), request.method, request.host, request.path)
        if not answer.text:
            return web.Response(status=answer.status)
        headers = {"Content-Type": answer.content_type}
        if answer.etag:
            headers["ETag"] = answer.etag
        if answer.is_old:
            headers["Warning"] = _OLD
        reason = answer.reason or None
        return web.Response(text=answer.text, status=answer.status, reason=reason, headers=headers)

    async def _answer(self, request: web.Request) -> HttpAnswer:
        rights = await rights_of(self._access, request, _log)
        self._on_authorized(request)
        target = parse_target(request.raw_path)
        self._operations.check(request.method, target, rights)
        asked = Asked(
            target=target,
            access=rights,
            base=f"{request.scheme}://{request.host}",
            host=request.host,
            query={name.lower(): value for name, value in request.query.items()},
            body=await _body(request),
            etag=request.headers.get("If-Match", ""),
        )
        self._operations.check(request.method, target, rights)  # the body may have come slowly
        return await self._operations.carry_out(request.method, asked)


async def _body(request: web.Request) -> bytes:
    if request.method != "PUT":
        return b""
    if request.transport is None:  # then aiohttp's `read` fails with an error of its own
        raise ArgumentError(_BROKEN)
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ArgumentError(f"A description has {BODY_BYTES_MAX} bytes at most.") from None
    except (ConnectionError, web.RequestPayloadError, HttpProcessingError):
        raise ArgumentError(_BROKEN) from None
