"""RabbitMQ's management API, as far as the bridge needs it.

Global parameters keep the definitions of entities, policies their changeable settings; the rest
is for diffs, checks at start, health, and tests.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import aiohttp
from yarl import URL

from bridge.broker.endpoint import Endpoint
from bridge.broker.errors import ConnectionLost, LoginRefused, ManagementRefused
from bridge.topology.resources import Policy, Value

PORT = 15_672
PORT_TLS = 15_671

TIMEOUT_S = 30.0
"""For one request. A list of thousands of queues takes seconds on a busy broker."""

_UNKNOWN_USER = frozenset(("Not_Authorized", "Login failed"))
"""How 4.x and 3.10 say that user or password are wrong; other 401s are missing rights."""

_Rows = list[dict[str, Any]]


def default_urls(endpoint: Endpoint) -> tuple[str, ...]:
    """Return where the API is, when nobody has said it: the default port of each host."""
    scheme, port = ("https", PORT_TLS) if endpoint.tls else ("http", PORT)
    hosts = [f"[{host}]" if ":" in host else host for host, _ in endpoint.hosts]
    return tuple(f"{scheme}://{host}:{port}" for host in hosts)


class Management:
    """A client of the API of one broker or cluster.

    Every call raises LoginRefused (wrong user), ManagementRefused (with the HTTP status and
    RabbitMQ's words), or ConnectionLost (no host answers, or it has no management plugin).
    """

    def __init__(
        self, endpoint: Endpoint, urls: Sequence[str] | str = (), *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Keep where and who.

        Args:
            endpoint: the login and the virtual host, and the default for `urls`.
            urls: base URLs, tried in turn; a login in one overrides the endpoint's.
            timeout_s: deadline of each request.
        """
        urls = (urls,) if isinstance(urls, str) else tuple(urls)
        self.vhost = endpoint.vhost
        self._bases = [_base(url, endpoint) for url in urls or default_urls(endpoint)]
        self._tls = endpoint.tls
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<Management {', '.join(base for base, _ in self._bases)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def global_parameters(self) -> dict[str, Value]:
        """Return all global parameters by name. RabbitMQ shows a top-level `{}` as `[]`."""
        rows = await self._rows("global-parameters")
        return {row["name"]: row["value"] for row in rows}

    async def global_parameter(self, name: str) -> Value:
        """Return one; None when it is not there."""
        row = await self._request("GET", "global-parameters", name, absent=None)
        return None if row is None else row["value"]

    async def put_global_parameter(self, name: str, value: Value) -> None:
        """Write one."""
        await self._request("PUT", "global-parameters", name, body={"name": name, "value": value})

    async def delete_global_parameter(self, name: str) -> None:
        """Delete one; one that is not there is no error."""
        await self._request("DELETE", "global-parameters", name, absent=None)

    async def policies(self, *, operator: bool = False) -> list[Policy]:
        """Return the policies, or the operator policies, of the virtual host."""
        rows = await self._rows(_policies(operator), self.vhost)
        return [
            Policy(
                name=row["name"],
                pattern=row["pattern"],
                definition=row["definition"],
                priority=row["priority"],
                apply_to=row["apply-to"],
                is_operator=operator,
            )
            for row in rows
        ]

    async def put_policy(self, policy: Policy) -> None:
        """Create a policy or replace the one of this name."""
        body = {
            "pattern": policy.pattern,
            "definition": policy.definition,
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }
        path = _policies(policy.is_operator), self.vhost, policy.name
        await self._request("PUT", *path, body=body)

    async def delete_policy(self, name: str, *, operator: bool = False) -> None:
        """Delete a policy; one that is not there is no error."""
        await self._request("DELETE", _policies(operator), self.vhost, name, absent=None)

    async def queues(self, columns: Sequence[str] = ()) -> _Rows:
        """Return the queues and streams of the virtual host; `columns` limits their keys."""
        return await self._rows("queues", self.vhost, columns=columns)

    async def queue(self, name: str) -> dict[str, Any] | None:
        """Return one queue with its figures, which are seconds old; None when it is not there."""
        row: dict[str, Any] | None = await self._request(
            "GET", "queues", self.vhost, name, absent=None
        )
        return row

    async def delete_queue(self, name: str) -> None:
        """Delete a queue, also one that AMQP can no longer delete."""
        await self._request("DELETE", "queues", self.vhost, name, absent=None)

    async def exchanges(self, columns: Sequence[str] = ()) -> _Rows:
        """Return the exchanges of the virtual host."""
        return await self._rows("exchanges", self.vhost, columns=columns)

    async def bindings(self, columns: Sequence[str] = ()) -> _Rows:
        """Return the bindings of the virtual host, those of the default exchange included."""
        return await self._rows("bindings", self.vhost, columns=columns)

    async def nodes(self) -> _Rows:
        """Return the nodes. `uptime` and alarms are up to five seconds old."""
        return await self._rows("nodes")

    async def overview(self) -> dict[str, Any]:
        """Return the overview: `rabbitmq_version`, `cluster_name`, totals."""
        overview: dict[str, Any] = await self._request("GET", "overview")
        return overview

    async def alarms(self) -> list[str]:
        """Return the alarms that are on, such as `memory on rabbit@host`."""
        alarms = []
        for node in await self.nodes():
            if node.get("mem_alarm"):
                alarms.append(f"memory on {node['name']}")
            if node.get("disk_free_alarm"):
                alarms.append(f"disk on {node['name']}")
        return alarms

    async def definitions(self) -> dict[str, Any]:
        """Return the definitions of the whole broker, global parameters included."""
        definitions: dict[str, Any] = await self._request("GET", "definitions")
        return definitions

    async def import_definitions(self, definitions: Mapping[str, Any]) -> None:
        """Load definitions into the broker."""
        await self._request("POST", "definitions", body=dict(definitions))

    async def whoami(self) -> dict[str, Any]:
        """Return the user's name and tags."""
        user: dict[str, Any] = await self._request("GET", "whoami")
        return user

    async def permissions(self) -> dict[str, Any] | None:
        """Return the user's rights on the virtual host (configure, write, read); None if none.

        A user without the tag administrator may not ask: ManagementRefused 401.
        """
        name = (await self.whoami())["name"]
        path = "permissions", self.vhost, name
        rights: dict[str, Any] | None = await self._request("GET", *path, absent=None)
        return rights

    async def feature_flags(self) -> dict[str, str]:
        """Return the state of each feature flag: `enabled`, `disabled`, `unavailable`."""
        return {row["name"]: row["state"] for row in await self._rows("feature-flags")}

    async def vhosts(self) -> list[str]:
        """Return the names of all virtual hosts that the user sees."""
        return [row["name"] for row in await self._rows("vhosts")]

    async def put_vhost(self, name: str) -> None:
        """Create a virtual host that this user may do everything in."""
        await self._request("PUT", "vhosts", name, body={})
        user = (await self.whoami())["name"]
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await self._request("PUT", "permissions", name, user, body=everything)

    async def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it."""
        await self._request("DELETE", "vhosts", name, absent=None)

    async def connections(self) -> _Rows:
        """Return the client connections; a new one shows up after seconds."""
        return await self._rows("connections")

    async def close_connection(self, name: str) -> None:
        """Close a client's connection by RabbitMQ's name of it."""
        await self._request("DELETE", "connections", name, absent=None)

    async def _rows(self, *path: str, columns: Sequence[str] = ()) -> _Rows:
        query = {"columns": ",".join(columns)} if columns else {}
        rows: _Rows = await self._request("GET", *path, query=query)
        return rows

    async def _request(
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
            body: what becomes JSON.
            query: the query.
            absent: `absent=None` makes "not found" the answer None.
        """
        failures = []
        for base, login in self._bases:
            try:
                status, text = await self._exchange(verb, base, login, path, body, query)
            except TimeoutError:
                failures.append(f"{base} did not answer within {self._timeout_s:g} s")
            except (OSError, aiohttp.ClientError) as error:
                failures.append(f"{base}: {error}")
            else:
                return _answer(status, text, f"{verb} /api/{'/'.join(path)}", bool(absent))
        raise ConnectionLost(text="no management API answers: " + "; ".join(failures))

    async def _exchange(
        self,
        verb: str,
        base: str,
        login: str,
        path: Sequence[str],
        body: object,
        query: Mapping[str, str] | None,
    ) -> tuple[int, str]:
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
            return response.status, await response.text(errors="replace")


def _base(url: str, endpoint: Endpoint) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"a management URL begins with http:// or https://, not {url[:8]!r}")
    user, password = endpoint.user, endpoint.password
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
    login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    address = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}", login


def _policies(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


def _answer(status: int, text: str, what: str, is_absence_fine: bool) -> Any:
    if status == 404 and is_absence_fine:
        return None
    if 200 <= status < 300:
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ManagementRefused(status, f"{what} answered no JSON: {text[:80]!r}") from error
    try:
        reason = json.loads(text).get("reason", text)
    except (ValueError, AttributeError):
        reason = text
    if status == 401 and str(reason) in _UNKNOWN_USER:
        raise LoginRefused(status, f"the management API does not know the user: {reason}")
    raise ManagementRefused(status, f"{what}: {html.unescape(str(reason))[:500].strip()}")
