"""Tokens put to `$cbs`, one for each audience, and renewed before they end."""

from __future__ import annotations

import asyncio
import logging
import time

from bridge.background.retry import retry
from bridge.background.tasks import Tasks
from bridge.remote.connection import RemoteConnection
from bridge.remote.credentials import RemoteCredential, RemoteToken
from bridge.remote.errors import UNAUTHORIZED, RemoteError, error_of
from bridge.remote.patience import growing_wait
from bridge.remote.requests import RequestLinks
from bridge.wire.amqp10.message import AmqpMessage
from bridge.wire.amqp10.scalars import Timestamp

log = logging.getLogger("busbridge.remote")

CBS = "$cbs"

RENEWED_AFTER = 0.75
"""The part of a token's life after which it is renewed: an hour's after 45 minutes."""

_CONDITIONS = {401: UNAUTHORIZED, 403: UNAUTHORIZED, 404: "amqp:not-found"}


class Authorization:
    """What this client has proved on one connection.

    Links of an audience live as long as the last token for it: it is put again in time, by a task
    of its own that ends with the connection.
    """

    def __init__(self, connection: RemoteConnection, credential: RemoteCredential) -> None:
        self._connection = connection
        self._credential = credential
        self._links: RequestLinks | None = None
        self._opening = asyncio.Lock()
        self._put: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    async def ensure(self, audience: str) -> None:
        """Return when a token for an audience has been accepted.

        Raises:
            RemoteUnauthorized: the token is refused, or there is none.
            RemoteError: the connection has ended, or the server does not answer.
        """
        found = self._put.get(audience)
        if found is None:
            found = self._put[audience] = asyncio.get_running_loop().create_task(
                self._begin(audience), name=f"token of {audience}"
            )
            found.add_done_callback(_heard)
        try:
            await asyncio.shield(found)
        finally:
            is_refused = found.done() and (found.cancelled() or found.exception() is not None)
            if is_refused and self._put.get(audience) is found:
                del self._put[audience]

    def has_token(self, audience: str) -> bool:
        """Whether a token for an audience has been put."""
        return audience in self._put

    def forget(self, audience: str) -> None:
        """Put another token when the next link needs one: the server takes the last no more.

        So it is when this machine has slept, or its clock is slow: the token has ended before it
        was renewed.
        """
        self._put.pop(audience, None)

    async def _begin(self, audience: str) -> None:
        token = await self._renew(audience)
        self._tasks.start(self._keep(audience, token), name=f"renewals of {audience}")

    async def _renew(self, audience: str) -> RemoteToken:
        token = await self._credential.token(audience, time.time())
        fields = {
            "operation": "put-token",
            "type": token.kind,
            "name": audience,
            "expiration": Timestamp(int(token.expires_s * 1000)),
        }
        message = AmqpMessage(application_properties=fields, value=token.text)
        reply = await (await self._open()).ask(message)
        properties = reply.application_properties
        status = properties.get("status-code")
        if not isinstance(status, int) or not 200 <= status < 300:
            condition = properties.get("error-condition")
            if condition is None:
                number = status if isinstance(status, int) else 0
                condition = _CONDITIONS.get(number, "amqp:internal-error")
            raise error_of(str(condition), properties.get("status-description"))
        return token

    async def _open(self) -> RequestLinks:
        async with self._opening:
            if self._links is None or not self._links.is_open:
                links = RequestLinks(self._connection, CBS)
                await links.open()
                self._links = links
            return self._links

    async def _keep(self, audience: str, token: RemoteToken) -> None:
        """Renew a token until the connection ends, or until another one is put in its place."""
        put = self._put.get(audience)
        while token.is_renewable:
            left_s = token.expires_s - time.time()
            await asyncio.sleep(max(RENEWED_AFTER * left_s, 0.1))
            if not self._connection.is_open or self._put.get(audience) is not put:
                return
            try:
                token = await retry(
                    lambda: self._renew(audience),
                    wait_s=growing_wait(0.8, 30.0),
                    retryable=lambda error: isinstance(error, RemoteError) and error.retryable,
                    total_s=max((1 - RENEWED_AFTER) * left_s, 1.0),
                )
            except RemoteError as error:
                # Links of the audience end when the token does, with the server's words.
                log.warning("token.not-renewed audience=%s error=%s", audience, error)
                self._put.pop(audience, None)
                return

    def close(self) -> None:
        """Renew nothing any more."""
        self._tasks.cancel()


def _heard(put: asyncio.Task[None]) -> None:
    """Take a failure for heard: whoever waited for it may have been cancelled."""
    if not put.cancelled():
        put.exception()
