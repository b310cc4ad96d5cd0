"""The administration API over HTTP, for the administration clients of the Azure SDKs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bridge.admin.access import AUTHORIZATION, Access
from bridge.admin.answers import Answer, Asked, answered
from bridge.admin.operations import Operations
from bridge.admin.target import parse_target
from bridge.model.access import cause_of
from bridge.model.access_rules import RuleSet
from bridge.model.errors import ArgumentError, Unauthorized
from bridge.wire.atom.documents import BODY_BYTES_MAX

_log = logging.getLogger("busbridge.administration")

_OLD = '110 - "Response is Stale"'
"""The header `Warning` of an answer with old counts (RFC 7234, 5.5.1)."""

_BROKEN = "The rest of the request did not come, or is malformed."


class Service:
    """Answers HTTP requests to the administration API.

    Args:
        operations: carry the requests out.
        rules: returns the current shared access rules.
        on_authorized: called with each request whose token is valid, whatever its rights.
        now_s: returns the current time, in seconds since 1970 (UTC).
    """

    def __init__(
        self,
        operations: Operations,
        rules: Callable[[], RuleSet],
        *,
        on_authorized: Callable[[web.Request], None],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._operations = operations
        self._rules = rules
        self._on_authorized = on_authorized
        self._now_s = now_s

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

    async def _answer(self, request: web.Request) -> Answer:
        access = self._access(request)
        self._on_authorized(request)
        target = parse_target(request.raw_path)
        self._operations.check(request.method, target, access)
        asked = Asked(
            target=target,
            access=access,
            base=f"{request.scheme}://{request.host}",
            host=request.host,
            query={name.lower(): value for name, value in request.query.items()},
            body=await _body(request),
            etag=request.headers.get("If-Match", ""),
        )
        return await self._operations.carry_out(request.method, asked)

    def _access(self, request: web.Request) -> Access:
        try:
            return Access(request.headers, self._rules(), request.host, self._now_s())
        except Unauthorized as error:
            if AUTHORIZATION in request.headers:
                _log.info(
                    "token.refused peer=%s audience=%r reason=%r",
                    *(request.remote, f"{request.host}{request.path}", cause_of(error)),
                )
            raise


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
