"""HTTP requests to RabbitMQ's management API: choice of the host, login, JSON, and errors."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import LoginRefused, ManagementRefused, ManagementSilent
from bridge.broker.management import json_answers
from bridge.broker.management.listing import Listing, Row

if TYPE_CHECKING:  # of the extra `serve`: imported for the first request
    import aiohttp

PORT = 15_672
PORT_TLS = 15_671

TIMEOUT_S = 30.0
"""Deadline of one request. A list of thousands of queues takes seconds on a busy broker."""

OK = 200

LONG_BYTES = 65_536
"""Length of a list from which on it is read in a thread: this takes about a millisecond."""

_UNKNOWN_USER = frozenset(("Not_Authorized", "Login failed"))
"""Reasons by which RabbitMQ refuses a wrong user or password; other 401s are missing rights."""


def default_urls(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the default base URLs of the API: the default port on each host of an endpoint."""
    scheme, port = ("https", PORT_TLS) if endpoint.tls else ("http", PORT)
    hosts = [f"[{host}]" if ":" in host else host for host, _ in endpoint.hosts]
    return tuple(f"{scheme}://{host}:{port}" for host in hosts)


class HttpApi:
    """Requests to the API of one broker or cluster; `str` names its hosts without the login."""

    def __init__(self, endpoint: Endpoint, urls: Sequence[str] | str, *, timeout_s: float) -> None:
        """Keep the addresses and the login; see `Management`."""
        urls = (urls,) if isinstance(urls, str) else tuple(urls)
        self._bases = [_base(url, endpoint) for url in urls or default_urls(endpoint)]
        self._tls = endpoint.tls
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def __str__(self) -> str:
        return ", ".join(base for base, _ in self._bases)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        verb: str,
        *path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        **absent: None,
    ) -> Any:
        """Make a request at the first host that answers.

        Args:
            verb: the HTTP method.
            path: segments below `/api`, not yet encoded.
            body: the value of the JSON body; None for no body.
            query: the query's parameters.
            absent: with `absent=None` the result is None when RabbitMQ answers "not found".
        """
        status, answer = await self._answer(verb, path, body, query)
        return _value(status, _text(answer), f"{verb} /api/{'/'.join(path)}", bool(absent))

    async def listing(
        self, unless: bytes, *path: str, query: Mapping[str, str] | None = None
    ) -> Listing | None:
        """Get a list; None when it has this digest. A long one is read in a thread."""
        status, answer = await self._answer("GET", path, None, query)
        if status == OK and len(answer) >= LONG_BYTES:
            return await asyncio.to_thread(_listing, path, status, answer, unless)
        return _listing(path, status, answer, unless)

    async def _answer(
        self,
        verb: str,
        path: Sequence[str],
        body: object,
        query: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:
        """Return the status and the body of the first host's answer."""
        from aiohttp import ClientError

        failures = []
        for base, login in list(self._bases):
            try:
                answer = await self._exchange(verb, base, login, path, body, query)
            except TimeoutError:
                failures.append(f"{base} did not answer within {self._timeout_s:g} s")
            except (OSError, ClientError) as error:
                failures.append(f"{base}: {_words(error)}")
            else:
                # The next request tries this host first.
                self._bases.remove((base, login))
                self._bases.insert(0, (base, login))
                return answer
        raise ManagementSilent(text="no management API answers: " + "; ".join(failures))

    async def _exchange(
        self,
        verb: str,
        base: str,
        login: str,
        path: Sequence[str],
        body: object,
        query: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:
        import aiohttp
        from yarl import URL

        url = f"{base}/api/" + "/".join(quote(segment, safe="") for segment in path)
        if query:
            url += "?" + "&".join(f"{key}={quote(value)}" for key, value in query.items())
        if self._session is None:
            self._session = aiohttp.ClientSession()
        headers = {"Authorization": login}
        payload = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            payload = json.dumps(body).encode()
        async with (
            asyncio.timeout(self._timeout_s),
            self._session.request(
                verb,
                URL(url, encoded=True),
                data=payload,
                headers=headers,
                ssl=self._tls or True,
                allow_redirects=False,
            ) as response,
        ):
            return response.status, await response.read()


def _base(url: str, endpoint: Endpoint) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"a management URL begins with http:// or https://, not {url.rpartition('@')[2]!r}"
        )
    user, password = endpoint.user, endpoint.password
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
    login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    address = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}", login


def _words(error: Exception) -> str:
    """Return the text of a network error without the address, which the caller adds."""
    import aiohttp

    if isinstance(error, aiohttp.ClientSSLError):  # its errno is no system error's number
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError) and (number := error.os_error.errno):
        return os.strerror(number) if number > 0 else str(error.os_error.strerror)
    return str(error)


def _text(answer: bytes) -> str:
    return answer.decode(errors="replace")


def _listing(path: Sequence[str], status: int, answer: bytes, unless: bytes) -> Listing | None:
    what = f"GET /api/{'/'.join(path)}"
    if status != OK:
        _value(status, _text(answer), what, False)
    digest = hashlib.blake2b(answer, digest_size=16).digest()
    if digest == unless:
        return None
    text = _text(answer)
    try:
        return Listing(digest, [Row(*each) for each in json_answers.rows(text)])
    except ValueError as error:
        raise _no_json(status, text, what) from error


def _value(status: int, text: str, what: str, is_absence_fine: bool) -> Any:
    if status == 404 and is_absence_fine:
        return None
    if 200 <= status < 300:
        try:
            return json_answers.read(text) if text else None
        except ValueError as error:
            raise _no_json(status, text, what) from error
    try:
        reason = json_answers.read(text).get("reason", text)
    except (ValueError, AttributeError):
        reason = text
    if status == 401 and str(reason) in _UNKNOWN_USER:
        raise LoginRefused(status, f"the management API does not know the user: {reason}")
    raise ManagementRefused(status, f"{what}: {html.unescape(str(reason))[:500].strip()}")


def _no_json(status: int, text: str, what: str) -> ManagementRefused:
    return ManagementRefused(status, f"{what} answered no JSON: {text[:80]!r}")
