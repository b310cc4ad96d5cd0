"""Administration of a remote namespace: its entities and rules, over HTTP."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import JWT_KIND, RemoteCredential
from bridge.remote.entity import RemoteEntity
from bridge.remote.errors import (
    CONNECTION_FORCED,
    SERVER_BUSY,
    TIMEOUT,
    UNAUTHORIZED,
    RemoteConnectionLost,
    RemoteError,
    RemoteNotFound,
    RemoteTimeout,
    error_of,
)
from bridge.remote.patience import Patience
from bridge.remote.proxy import proxy_of
from bridge.remote.reachability import not_reached
from bridge.remote.tls import context_of
from bridge.wire.atom.client import (
    API_VERSION,
    NAMESPACE,
    PageSpan,
    description_of,
    list_path,
    page_of,
    path_of,
    request_text,
    root_in,
)
from bridge.wire.atom.writing import XmlElement
from bridge.wire.atom.xml import Element, XmlError

if TYPE_CHECKING:  # of the extra `tools`: imported for the first request
    import aiohttp

PAGE = 100
"""Entries of a list in one request (the SDKs, and the most that Azure gives)."""

TIMEOUT_S = 60.0
OTHER_PORT_S = 5.0

PORT_ADVICE = " If administration is at another port, name it in the Endpoint: sb://HOST:PORT."
"""For who has named none: the emulator's was assumed."""

_FORWARDING = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""Property -> the header with a token for its target, as the SDKs send it."""

_CONDITIONS = {
    400: "com.microsoft:argument-error",
    401: UNAUTHORIZED,
    403: "amqp:resource-limit-exceeded",
    404: "amqp:not-found",
    408: TIMEOUT,
    409: "com.microsoft:entity-already-exists",
    412: "com.microsoft:precondition-failed",
    429: SERVER_BUSY,
    501: "amqp:not-implemented",
    503: SERVER_BUSY,
    504: TIMEOUT,
}

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""After these another attempt may succeed (azure-core, of all SDKs)."""

_IN_DOUBT = _PASSING - {429, 503}
"""After these a change may have been made."""


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace's own description: its name, and its tier as Azure spells it."""

    name: str
    tier: str


class RemoteAdministration:
    """Reads, creates, changes and deletes the entities of a namespace, with the right Manage.

    Entities are named by `names`: a queue's or topic's name; a topic's and a subscription's; a
    topic's, a subscription's and a rule's.

    Where the address is for one entity, no other is found, listed or changed.

    A read that fails on the way is made again. A change is made again only when it is sure that it
    was not made: the namespace was busy.

    Args:
        address: where the namespace is.
        credential: what this client proves itself with.
        patience: how long requests are made again; one that never reached the namespace is not.
    """

    def __init__(
        self,
        address: RemoteAddress,
        credential: RemoteCredential,
        *,
        patience: Patience | None = None,
    ) -> None:
        self._url = address.administration_url
        self._audience = f"{urlsplit(self._url).scheme}://{address.namespace}/"
        self._address = address
        self._credential = credential
        self._patience = patience or Patience()
        self._session: aiohttp.ClientSession | None = None
        self._has_answered = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def namespace(self) -> NamespaceInfo:
        """Return the namespace's own description."""
        root = await self._read(NAMESPACE)
        found = description_of(root, "NamespaceInfo") or Element("", "", {})
        return NamespaceInfo(found.text_of("Name"), found.text_of("MessagingSKU"))

    def queues(self) -> AsyncIterator[RemoteEntity]:
        """Yield all queues with their counts."""
        return self._list("Queue")

    def topics(self) -> AsyncIterator[RemoteEntity]:
        """Yield all topics with their counts."""
        return self._list("Topic")

    def subscriptions(self, topic: str) -> AsyncIterator[RemoteEntity]:
        """Yield all subscriptions of a topic with their counts."""
        return self._list("Subscription", topic)

    def rules(self, topic: str, subscription: str) -> AsyncIterator[RemoteEntity]:
        """Yield all rules of a subscription."""
        return self._list("Rule", topic, subscription)

    async def get(self, kind: str, *names: str) -> RemoteEntity:
        """Return an entity or a rule with its counts.

        Raises:
            RemoteNotFound: there is none of this kind and name.
            RemoteOtherEntity: the address is for another one.
            RemoteError: the namespace refuses, or does not answer.
        """
        self._address.check(names[0])
        return _described(await self._read(path_of(*names)), kind, names)

    async def find(self, *names: str) -> RemoteEntity:
        """Return what has these names: for one name, a queue or a topic.

        Raises:
            RemoteNotFound, RemoteError: see `get`.
        """
        self._address.check(names[0])
        root = await self._read(path_of(*names))
        if len(names) > 1:
            return _described(root, ("Subscription", "Rule")[len(names) - 2], names)
        kind = "Topic" if description_of(root, "TopicDescription") is not None else "Queue"
        return _described(root, kind, names)

    async def create(self, kind: str, description: XmlElement, *names: str) -> RemoteEntity:
        """Create an entity or a rule; the service chooses what the description leaves out.

        Raises:
            RemoteOtherEntity: see `get`.
            RemoteError: the namespace refuses, or does not answer: then it may have been done.
        """
        return _described(await self._write(description, "", names), kind, names)

    async def update(self, kind: str, description: XmlElement, *names: str) -> RemoteEntity:
        """Replace the description of an entity or a rule.

        Raises:
            RemoteNotFound, RemoteError: see `create`.
        """
        return _described(await self._write(description, "*", names), kind, names)

    async def delete(self, *names: str) -> None:
        """Delete an entity with all that is in it, or a rule.

        Raises:
            RemoteNotFound, RemoteError: see `create`.
        """
        self._address.check(names[0])
        await self._retried("DELETE", path_of(*names), {}, {}, "")

    async def _list(self, kind: str, *names: str) -> AsyncIterator[RemoteEntity]:
        own = self._address.entity
        if own is not None and not names:
            with suppress(RemoteNotFound):
                yield await self.get(kind, own)
            return
        for each in names[:1]:
            self._address.check(each)
        path = list_path(kind, *names)
        place: PageSpan | None = (0, PAGE)
        while place is not None:
            query = {"$skip": str(place[0]), "$top": str(place[1])}
            root = await self._read(path, query)
            entries, place = page_of(root, f"{kind}Description")
            for title, found in entries:
                yield RemoteEntity(kind, (*names, title), found)

    async def _read(self, path: str, query: Mapping[str, str] | None = None) -> Element:
        return await self._retried("GET", path, query or {}, {}, "")

    async def _write(self, description: XmlElement, etag: str, names: tuple[str, ...]) -> Element:
        self._address.check(names[0])
        headers = {"Content-Type": "application/atom+xml"}
        if etag:
            headers["If-Match"] = etag
        for child in description.children:
            if (header := _FORWARDING.get(child.name)) and child.text:
                target = child.text if "://" in child.text else f"{self._audience}{child.text}"
                headers[header] = await self._authorization(target)
        return await self._retried("PUT", path_of(*names), {}, headers, request_text(description))

    async def _authorization(self, audience: str) -> str:
        token = await self._credential.token(audience, time.time())
        return f"Bearer {token.text}" if token.kind == JWT_KIND else token.text

    async def _retried(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str],
        body: str,
    ) -> Element:  # fmt: skip
        """Make a request, again where the patience says so: a read is never in doubt."""

        async def request() -> Element:
            return await self._request(method, path, query, headers, body)

        return await self._patience.repeat(request)

    async def _request(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str],
        body: str,
    ) -> Element:  # fmt: skip
        import aiohttp

        asked = "&".join(f"{name}={value}" for name, value in query.items())
        target = f"{path}?{asked}{'&' * bool(asked)}api-version={API_VERSION}"
        all_headers = {**headers, "Authorization": await self._authorization(self._audience)}
        try:
            try:
                status, reason, raw = await self._exchange(method, target, all_headers, body)
            except aiohttp.ClientConnectorError:
                if self._has_answered or not await self._is_at_other_port():
                    raise
                status, reason, raw = await self._exchange(method, target, all_headers, body)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._lost(error, is_change=method != "GET") from error
        self._has_answered = True
        try:
            root = root_in(raw.decode("utf-8-sig"))
        except (UnicodeDecodeError, XmlError):
            root = Element("", "", {})
        if status >= 300:
            condition = _CONDITIONS.get(status, "amqp:internal-error")
            words = root.text_of("Detail") or f"{self._url}: {status} {reason}"
            refused = error_of(condition, words)
            refused.retryable = status in _PASSING
            refused.in_doubt = status in _IN_DOUBT and method != "GET"
            raise refused
        if raw and not root.name:
            text = f"{self._url} answers with something else than entities: is it Service Bus?"
            raise RemoteError(CONNECTION_FORCED, text)
        return root

    async def _exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: str
    ) -> tuple[int, str | None, bytes]:
        """Return status, reason and body of the answer to one request."""
        from yarl import URL

        url = URL(f"{self._url}/{target}", encoded=True)
        async with self._client().request(
            method, url, headers=headers, data=body.encode() or None, allow_redirects=False,
            proxy=proxy_of(self._url),
        ) as answer:  # fmt: skip
            return answer.status, answer.reason, await answer.read()

    async def _is_at_other_port(self) -> bool:
        """Whether something answers where a bridge administers, too; then it is asked there."""
        import aiohttp

        other = self._address.other_administration_url
        if other is None or other == self._url:
            return False
        within = aiohttp.ClientTimeout(total=OTHER_PORT_S)
        try:
            async with self._client().get(f"{other}/{NAMESPACE}", timeout=within):
                self._url = other
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return True

    def _client(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            context = context_of(self._address)
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                connector=aiohttp.TCPConnector(ssl=context if context is not None else True),
            )
            # It would make a PUT or DELETE again by itself when the connection is lost, and the
            # first one may have been done. There is no public way to say so.
            self._session._retry_connection = False
        return self._session

    def _lost(self, error: BaseException, *, is_change: bool) -> RemoteError:
        """Return the error for a request without an answer.

        A namespace that has never answered is not asked again: its address is wrong, most likely.
        """
        import aiohttp

        if isinstance(error, TimeoutError):
            text = f"{self._url} does not answer within {TIMEOUT_S:.0f} s."
            late = RemoteTimeout(TIMEOUT, text, self._has_answered)
            late.in_doubt = is_change
            return late
        not_connected = (
            aiohttp.ClientConnectorError, aiohttp.ClientSSLError, aiohttp.ClientHttpProxyError,
            ssl.SSLError,
        )  # fmt: skip
        if isinstance(error, not_connected):
            retryable, proxy = self._has_answered, proxy_of(self._url)
            lost = not_reached(self._url, error, retryable=retryable, proxy=proxy)
            if not self._has_answered and self._address.other_administration_url is not None:
                lost.description += PORT_ADVICE
            return lost
        text = f"{self._url} ended the connection without an answer."
        return RemoteConnectionLost(CONNECTION_FORCED, text, self._has_answered, in_doubt=is_change)


def _described(root: Element, kind: str, names: tuple[str, ...]) -> RemoteEntity:
    """Return what an answer describes; Azure answers with an empty feed for what is not there."""
    found = description_of(root, f"{kind}Description")
    if found is None:
        path = RemoteEntity(kind, names, root).path
        raise RemoteNotFound("amqp:not-found", f"There is no {kind.lower()} {path!r}.")
    return RemoteEntity(kind, names, found)
