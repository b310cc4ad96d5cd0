"""The REST API of messages: send, receive and settle.

Source of paths, fields and status codes: the Service Bus REST reference, "Service Bus Runtime REST"
(learn.microsoft.com/rest/api/servicebus/service-bus-runtime-rest) with its pages Send Message, Send
Message Batch, Peek-Lock Message, Receive and Delete Message, Unlock Message, Delete Message and
Renew-Lock for a Message. An entity that does not exist is 410 there, a lock that does not exist
404. Sessions cannot be received from over HTTP at Azure either (its table of features): that is
refused in the words that AMQP's clients get. The id or number in front of a token is not compared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote

from aiohttp import web

from bridge.access.access import Access
from bridge.admin.refusals import CONTENT_TYPE, refusal
from bridge.admin.request_rights import RequestRights, rights_of
from bridge.broker.errors import BrokerError
from bridge.broker.outcome import resolve
from bridge.engine import texts
from bridge.engine.api import Abandon, Complete, NamespaceVerbs, Received, ReceiveMode
from bridge.gateway.client.texts import STOPPING
from bridge.gateway.http.site import authorize, has_ended, is_heard, leaving_of
from bridge.gateway.links.sending import BATCH_BYTES_MAX, outgoing
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Right
from bridge.model.errors import (
    ArgumentError,
    EntityNotFound,
    InternalError,
    MessageLockLost,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
    Unauthorized,
)
from bridge.model.name import EntityPath
from bridge.rest.bodies import Bodies, Body
from bridge.rest.reception import Reception
from bridge.rest.target import RestTarget, Verb
from bridge.wire.mapping.fields import MappingError
from bridge.wire.rest import inward
from bridge.wire.rest.broker_properties import parse_json, read_broker_properties
from bridge.wire.rest.header_fields import BROKER_PROPERTIES, read_fields, readable
from bridge.wire.rest.outward import CONTENT_TYPE_DEFAULT, Shown

_log = logging.getLogger("busbridge.messages")

TIMEOUT_S = 60.0
"""The wait of a receive without `timeout`, and the longest; also the time of other requests."""

WAITS_MAX = 1_000
"""Receives that wait at a time."""

_ENDED = (
    "A client that receives keeps its side of the connection open until it has the answer: who "
    "closes it cannot be told from who has left."
)

_STATUS: dict[type[ServiceBusError], int] = {EntityNotFound: 410, MessageLockLost: 404}
"""Where the REST reference has another status than other APIs have for the error."""

_MODES = {
    Verb.PEEK_LOCK: ReceiveMode.PEEK_LOCK,
    Verb.RECEIVE_AND_DELETE: ReceiveMode.RECEIVE_AND_DELETE,
}


class Messages:
    """Answers the requests of the REST API of messages.

    Args:
        namespace: the engine's verbs.
        access: verifies tokens.
        now_s: returns the current time, in seconds since 1970 (UTC).
    """

    def __init__(
        self,
        namespace: NamespaceVerbs,
        access: Access,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._namespace = namespace
        self._access = access
        self._now_s = now_s
        self._bodies = Bodies()
        self._waits = 0

    async def answer(self, request: web.Request, target: RestTarget) -> web.StreamResponse:
        """Answer one request; a refusal or a failure becomes an error in Azure's form."""
        try:
            return await self._answer(request, target)
        except ServiceBusError as error:
            return self._refused(request, target, error)
        except BrokerError as error:
            busy = ServerBusy(texts.busy(str(error)))
            return self._refused(request, target, busy)
        except ConnectionError:
            raise
        except Exception:
            _log.exception("messages.failed path=%r", request.path)
            failed = InternalError("The bridge has failed; its log says how.")
            return self._refused(request, target, failed)

    async def _answer(self, request: web.Request, target: RestTarget) -> web.StreamResponse:
        rights = await rights_of(self._access, request, _log, grace_s=0)
        authorize(request)
        path = target.path
        rights.require(Right.SEND if target.verb is Verb.SEND else Right.LISTEN, path)
        timeout_s = _timeout_s(request.query.get("timeout"))
        if target.verb in _MODES:
            check = partial(rights.require, Right.LISTEN, path)
            return await self._receive(request, path, _MODES[target.verb], timeout_s, check)
        try:
            async with asyncio.timeout(timeout_s or TIMEOUT_S):
                return await self._done(request, target, path, rights)
        except TimeoutError:
            late = "it did not end within the time of the request"
            raise OperationTimeout(texts.unknown(late)) from None

    async def _done(
        self, request: web.Request, target: RestTarget, path: EntityPath, rights: RequestRights
    ) -> web.StreamResponse:
        if target.verb is Verb.SEND:
            return await self._send(request, path, rights)
        token = target.lock_token
        self._namespace.receive_entity(path)
        match target.verb:
            case Verb.DELETE:
                await self._namespace.settle(path, token, Complete())
            case Verb.UNLOCK:
                await self._namespace.settle(path, token, Abandon())
            case _:
                await self._namespace.renew_locks(path, [token])
        return web.Response(headers={"Content-Type": CONTENT_TYPE_DEFAULT})

    def _refused(
        self, request: web.Request, target: RestTarget, error: ServiceBusError
    ) -> web.StreamResponse:
        if not isinstance(error, Unauthorized):
            _log.info(
                "messages.refused verb=%r entity=%r reason=%r",
                *(target.verb.value, target.address, str(error)),
            )
        known = _STATUS.get(type(error))
        status, text = refusal(error, request.host, request.path.strip("/"), known)
        return web.Response(text=text, status=status, headers={"Content-Type": CONTENT_TYPE})

    # -- sending

    async def _send(
        self, request: web.Request, path: EntityPath, rights: RequestRights
    ) -> web.StreamResponse:
        entity = self._namespace.send_entity(path)
        content_type = request.headers.get("Content-Type", "")
        is_batch = content_type.partition(";")[0].strip().lower() == inward.BATCH_TYPE
        limit_bytes = self._namespace.message_bytes_max(path)
        if is_batch:
            limit_bytes = min(limit_bytes, BATCH_BYTES_MAX)
        with Body(self._bodies) as body:
            content = await body.read(request, entity.path, limit_bytes)
            try:
                rights.require(Right.SEND, path)  # the body may have come slowly
                if is_batch:
                    await self._send_batch(path, content)
                else:
                    single = outgoing(self._single(request, content, content_type))
                    await self._namespace.send(path, [single])
            except MappingError as error:
                raise ArgumentError(f"The message cannot be stored: {error}.") from error
        headers = {"Content-Type": content_type or CONTENT_TYPE_DEFAULT}
        return web.Response(status=201, headers=headers)

    async def _send_batch(self, path: EntityPath, content: bytes) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done = partial(resolve, stored)
        await self._namespace.begin_sending_each(path, self._batch(content), done)
        await stored

    def _batch(self, content: bytes) -> Iterator[Outgoing]:
        for raw in inward.encode_each(inward.batch_of(content), self._now_ms):
            yield outgoing(raw)

    def _single(self, request: web.Request, content: bytes, content_type: str) -> bytes:
        text = request.headers.get(BROKER_PROPERTIES, "")
        said = parse_json(readable(text), BROKER_PROPERTIES) if text.strip() else None
        given = read_broker_properties(said)
        custom = read_fields(request.headers.items())
        return inward.encode(content, given, custom, content_type or None, self._now_ms)

    @property
    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)

    # -- receiving

    async def _receive(
        self,
        request: web.Request,
        path: EntityPath,
        mode: ReceiveMode,
        timeout_s: float,
        check: Callable[[], None],
    ) -> web.StreamResponse:
        if self._waits >= WAITS_MAX:
            raise ServerBusy(f"{WAITS_MAX} receives wait for messages; try again.")
        leaving = leaving_of(request)
        self._waits += 1
        try:
            reception = Reception(self._namespace, path, mode, check)
            try:
                found = await reception.message(timeout_s, leaving)
                if has_ended(request):
                    raise ArgumentError(_ENDED)
                if found is None:
                    return self._nothing(request, path, leaving)
                if not is_heard(request):
                    # the client may have left long ago
                    raise ArgumentError("A receive takes no body, and few requests behind it.")
                response = _response(request, path, *found)
                await response.prepare(request)
                await response.write_eof()
                reception.written()
                return response
            finally:
                await reception.close()
        finally:
            self._waits -= 1

    def _nothing(
        self, request: web.Request, path: EntityPath, leaving: asyncio.Future[None]
    ) -> web.Response:
        """Return the answer to a receive that has no message: 204, unless something is wrong."""
        is_there = request.transport is not None and not request.transport.is_closing()
        if is_there and leaving.done():
            raise ServerBusy(STOPPING)
        if is_there:
            self._namespace.receive_entity(path)
        return web.Response(status=204)


def _response(
    request: web.Request, path: EntityPath, received: Received, shown: Shown
) -> web.Response:
    response = web.Response(
        body=shown.body,
        status=200 if received.lock_token is None else 201,
        headers={"Content-Type": shown.content_type, BROKER_PROPERTIES: shown.broker_properties},
    )
    if received.lock_token is not None:
        place = quote(f"/{str(path).lower()}/messages/{received.sequence_number}", safe="/$~")
        base = f"{request.scheme}://{request.host}"
        response.headers["Location"] = f"{base}{place}/{received.lock_token}"
    for name, value in shown.custom:
        response.headers.add(name, value)
    return response


def _timeout_s(text: str | None) -> float:
    """Return the time that a client gives a request, in seconds, 60 s at most.

    Raises:
        ArgumentError: the text is no number of seconds from 0 on.
    """
    if text is None or not text.strip():
        return TIMEOUT_S
    try:
        given_s = float(text)
    except ValueError:
        given_s = -1.0
    if not given_s >= 0:
        raise ArgumentError(f"timeout is {text[:20]!r}; it is a number of seconds.")
    return min(given_s, TIMEOUT_S)
