"""The exchanges, queues and bindings of the virtual host, as the management API lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.broker.management.api import Management
from bridge.broker.management.listing import Row
from bridge.topology.diff import Change, Declared, declarations
from bridge.topology.resources import Binding, Exchange, Parameter, Queue, Topology
from bridge.topology.sharing import others


async def read_live(management: Management) -> Topology:
    """Read the exchanges, queues, bindings, policies and global parameters."""
    exchanges, queues, bindings = [await _rows(management, kind) for kind in KINDS]
    parameters = await management.global_parameters()
    users = await management.policies()
    operators = await management.policies(operator=True)
    live = await asyncio.to_thread(_topology, exchanges, queues, bindings)
    return replace(
        live,
        policies=(*users, *operators),
        parameters=tuple(Parameter(name=name, value=value) for name, value in parameters.items()),
    )


def binding_of(row: dict[str, Any]) -> Binding:
    """Return a binding as the API shows it."""
    return Binding(
        source=row["source"],
        destination=row["destination"],
        routing_key=row["routing_key"],
        to_exchange=row["destination_type"] == "exchange",
        arguments=_arguments(row),
    )


def _exchange_of(row: dict[str, Any]) -> Exchange:
    return Exchange(name=row["name"], type=row["type"], arguments=_arguments(row))


def _queue_of(row: dict[str, Any]) -> Queue:
    return Queue(name=row["name"], arguments=_arguments(row))


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """Return an object's arguments; the API shows an empty object as an empty list in places."""
    return row.get("arguments") or {}


@dataclass(frozen=True, slots=True)
class ResourceList:
    """One of the API's lists.

    Attributes:
        path: its name in the API.
        columns: the keys that are needed of each row; none: all.
        made: makes a row's resource.
    """

    path: str
    columns: tuple[str, ...]
    made: Callable[[dict[str, Any]], Declared]


_OF_BINDINGS = "source", "destination", "destination_type", "routing_key", "arguments"

EXCHANGES = ResourceList("exchanges", ("name", "type", "arguments"), _exchange_of)
QUEUES = ResourceList("queues", ("name", "arguments"), _queue_of)
BINDINGS = ResourceList("bindings", _OF_BINDINGS, binding_of)
KINDS = EXCHANGES, QUEUES, BINDINGS


class View:
    """The wanted resources that one list lacks; it is read when one of the two has changed."""

    def __init__(self, management: Management, kind: ResourceList) -> None:
        self._management = management
        self._kind = kind
        self._digest = b""
        self._version: Hashable = None
        self._changes: Sequence[Change] = ()

    async def look(self, wanted: Iterable[Declared], version: Hashable) -> Sequence[Change]:
        """Return the creations of what is missing, and the conflicts.

        Args:
            wanted: the wanted resources of this kind.
            version: another one for other wanted resources.
        """
        unless = self._digest if version == self._version else b""
        listing = await self._management.listing(self._kind.path, self._kind.columns, unless)
        if listing is not None:
            self._changes = await asyncio.to_thread(self._judge, wanted, listing.rows)
            self._digest, self._version = listing.digest, version
        return self._changes

    def _judge(self, wanted: Iterable[Declared], rows: Iterable[Row]) -> list[Change]:
        live = [self._kind.made(row.value) for row in rows]
        self._note(live)
        return declarations(wanted, live)

    def _note(self, live: Sequence[Declared]) -> None:
        """Note what else the list says."""


class QueuesView(View):
    """The view of the queues.

    Attributes:
        others: a user's own quorum queues; None before the first look.
    """

    def __init__(self, management: Management) -> None:
        super().__init__(management, QUEUES)
        self.others: Collection[str] | None = None

    def _note(self, live: Sequence[Declared]) -> None:
        self.others = others(Topology.of(live))


async def _rows(management: Management, kind: ResourceList) -> Sequence[Row]:
    listing = await management.listing(kind.path, kind.columns)
    return () if listing is None else listing.rows


def _topology(*lists: Sequence[Row]) -> Topology:
    return Topology.of(
        kind.made(row.value) for kind, rows in zip(KINDS, lists, strict=True) for row in rows
    )
