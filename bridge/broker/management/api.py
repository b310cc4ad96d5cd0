"""RabbitMQ's management API, as far as the bridge needs it.

Global parameters keep the definitions of entities, and policies the changeable settings. The other
calls are for diffs, checks at start, health, and tests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import ManagementRefused
from bridge.broker.management.http import TIMEOUT_S, HttpApi
from bridge.broker.management.listing import Listing
from bridge.topology.resources import Policy, Value

_Rows = list[dict[str, Any]]


_WITHOUT_FIGURES = {"disable_stats": "true"}

SINGLE_MAX = 12
"""Maximum number of queues that are read one by one; more are read as one list of all queues."""


class Figures(NamedTuple):
    """RabbitMQ's figures of a queue.

    Attributes:
        messages: ready and unacked messages; `None` when RabbitMQ has no figure.
        bytes: the size of these messages, 0 likewise.
    """

    messages: int | None
    bytes: int


class Management:
    """A client of the API of one broker or cluster.

    Every call raises LoginRefused (wrong user), ManagementRefused (with the HTTP status and
    RabbitMQ's words), or ConnectionLost (no host answers, or it has no management plugin).
    """

    def __init__(
        self, endpoint: Endpoint, urls: Sequence[str] | str = (), *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Keep the addresses and the login; nothing is sent yet.

        Args:
            endpoint: the login and the virtual host, and the default for `urls`.
            urls: base URLs, tried in turn; a login in one overrides the endpoint's.
            timeout_s: deadline of each request.
        """
        self.vhost = endpoint.vhost
        self._http = HttpApi(endpoint, urls, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"<Management {self._http}>"

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
        await self._http.close()

    async def global_parameters(self) -> dict[str, Value]:
        """Return all global parameters by name. RabbitMQ shows a top-level `{}` as `[]`."""
        rows = await self._rows("global-parameters")
        return {row["name"]: row["value"] for row in rows}

    async def global_parameters_unless(self, digest: bytes) -> Listing | None:
        """Return all global parameters as rows with `name` and `value`.

        The result is None when the answer has this digest: nothing has changed since.
        """
        return await self._listing("global-parameters", unless=digest)

    async def global_parameter(self, name: str) -> Value:
        """Return the value of a global parameter; None when there is no such parameter."""
        row = await self._http.request("GET", "global-parameters", name, absent=None)
        return None if row is None else row["value"]

    async def put_global_parameter(self, name: str, value: Value) -> None:
        """Create or replace a global parameter."""
        await self._http.request(
            "PUT", "global-parameters", name, body={"name": name, "value": value}
        )

    async def delete_global_parameter(self, name: str) -> None:
        """Delete a global parameter; a missing one is no error."""
        await self._http.request("DELETE", "global-parameters", name, absent=None)

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
        """Create a policy, or replace the policy of the same name."""
        body = {
            "pattern": policy.pattern,
            "definition": policy.definition,
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }
        path = _policies(policy.is_operator), self.vhost, policy.name
        await self._http.request("PUT", *path, body=body)

    async def delete_policy(self, name: str, *, operator: bool = False) -> None:
        """Delete a policy or operator policy; a missing one is no error."""
        await self._http.request("DELETE", _policies(operator), self.vhost, name, absent=None)

    async def queues(self, columns: Sequence[str] = ()) -> _Rows:
        """Return the queues and streams of the virtual host; `columns` limits their keys."""
        return await self._rows("queues", self.vhost, columns=columns)

    async def listing(
        self, kind: str, columns: Sequence[str] = (), unless: bytes = b""
    ) -> Listing | None:
        """Return the exchanges, queues or bindings (`kind`) of the virtual host.

        The bindings of the default exchange are included.

        Args:
            columns: the keys that are needed; none: all.
            unless: a digest; the result is None when the answer has it.
        """
        with _naming_the_binding():
            return await self._listing(kind, self.vhost, columns=columns, unless=unless)

    async def queue(self, name: str) -> dict[str, Any] | None:
        """Return a queue with its figures, which are seconds old; None when it does not exist."""
        row: dict[str, Any] | None = await self._http.request(
            "GET", "queues", self.vhost, name, absent=None
        )
        return row

    async def never_had_a_leader(self, quorum_queue: str, *, members: int) -> bool:
        """Return whether all members of a quorum queue answer, and none has had any entry or term.

        Such a queue never took a message. False where RabbitMQ does not tell.
        """
        path = "queues", "quorum", self.vhost, quorum_queue, "status"
        rows: _Rows | None = await self._http.request("GET", *path, absent=None)
        return (
            rows is not None
            and len(rows) == members
            and all(row.get("Term") == 0 and row.get("Last Log Index") == 0 for row in rows)
        )

    async def queue_figures(self, names: Sequence[str] | None = None) -> dict[str, Figures]:
        """Return the figures of some queues, of all by default; they are seconds old.

        A queue that does not exist is left out.
        """
        rows: Sequence[dict[str, Any] | None]
        if names is None or len(names) > SINGLE_MAX:
            wanted = None if names is None else set(names)
            found = await self.queues(("name", "messages", "message_bytes"))
            rows = [row for row in found if wanted is None or row["name"] in wanted]
        else:
            rows = await asyncio.gather(*map(self.queue, names))
        return {
            row["name"]: Figures(row.get("messages"), row.get("message_bytes") or 0)
            for row in rows
            if row is not None
        }

    async def queue_names(self) -> list[str]:
        """Return the names of all queues and streams of the virtual host."""
        query = {"columns": "name", **_WITHOUT_FIGURES}
        rows: _Rows = await self._http.request("GET", "queues", self.vhost, query=query)
        return [row["name"] for row in rows]

    async def delete_queue(self, name: str) -> None:
        """Delete a queue, also one that AMQP can no longer delete."""
        await self._http.request("DELETE", "queues", self.vhost, name, absent=None)

    async def bindings_from(self, exchange: str) -> _Rows:
        """Return the bindings of a source exchange; an empty list when it does not exist."""
        path = "exchanges", self.vhost, exchange, "bindings", "source"
        with _naming_the_binding():
            rows: _Rows | None = await self._http.request("GET", *path, absent=None)
            return rows or []

    async def queues_below(self, prefix: str) -> list[str]:
        """Return the names of the queues whose names begin with a prefix."""
        return [each for each in await self._named(prefix) if each.startswith(prefix)]

    async def queues_ending(self, suffix: str) -> list[str]:
        """Return the names of the queues whose names end with a suffix."""
        return [each for each in await self._named(suffix) if each.endswith(suffix)]

    async def _named(self, part: str) -> list[str]:
        """Return the names of the queues that have a part, in any case."""
        found: list[str] = []
        page, pages = 1, 1
        while page <= pages:
            query = {"name": part, "page": str(page), "page_size": "500", "columns": "name"}
            query |= _WITHOUT_FIGURES
            shown = await self._http.request("GET", "queues", self.vhost, query=query)
            found += [row["name"] for row in shown["items"]]
            pages, page = shown["page_count"], page + 1
        return found

    async def nodes(self) -> _Rows:
        """Return the nodes. `uptime` and alarms are up to five seconds old."""
        return await self._rows("nodes")

    async def is_cluster(self) -> bool:
        """Return whether RabbitMQ has several nodes; True when the user may not list nodes."""
        try:
            return len(await self.nodes()) > 1
        except ManagementRefused:
            return True

    async def overview(self) -> dict[str, Any]:
        """Return the overview: `rabbitmq_version`, `cluster_name`, totals."""
        overview: dict[str, Any] = await self._http.request("GET", "overview")
        return overview

    async def alarms(self) -> list[str]:
        """Return the active alarms, such as `memory on rabbit@host`.

        The list is empty when the user may not list nodes.
        """
        alarms = []
        try:
            nodes = await self.nodes()
        except ManagementRefused:
            return []
        for node in nodes:
            if node.get("mem_alarm"):
                alarms.append(f"memory on {node['name']}")
            if node.get("disk_free_alarm"):
                alarms.append(f"disk on {node['name']}")
        return alarms

    async def definitions(self) -> dict[str, Any]:
        """Return the definitions of the whole broker, global parameters included."""
        with _naming_the_binding():
            definitions: dict[str, Any] = await self._http.request("GET", "definitions")
            return definitions

    async def import_definitions(self, definitions: Mapping[str, Any]) -> None:
        """Load definitions into the broker."""
        await self._http.request("POST", "definitions", body=dict(definitions))

    async def _rows(self, *path: str, columns: Sequence[str] = ()) -> _Rows:
        listing = await self._listing(*path, columns=columns)
        return [] if listing is None else [row.value for row in listing.rows]

    async def _listing(
        self, *path: str, columns: Sequence[str] = (), unless: bytes = b""
    ) -> Listing | None:
        query = {"columns": ",".join(columns)} if columns else {}
        return await self._http.listing(unless, *path, query=query)


@contextlib.contextmanager
def _naming_the_binding() -> Iterator[None]:
    """Add the cause to a failed listing of bindings; see docs/rabbitmq-faults.md: tilde-key."""
    try:
        yield
    except ManagementRefused as error:
        if error.code != 500:
            raise
        raise ManagementRefused(
            error.code,
            f"{error.text} RabbitMQ's management API cannot list a binding with arguments and a "
            "'~' in its key. If 'rabbitmqctl list_bindings' shows one, bind it by another key.",
        ) from error


def _policies(operator: bool) -> str:
    return "operator-policies" if operator else "policies"
