"""The tables `[[routes]]` of a relay's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.model.filters.compiled import CompiledFilter
from bridge.model.filters.mismatches import mismatches
from bridge.model.filters.rules import check_rule, compile_filter
from bridge.model.name import SHORT_NAME_LENGTH_MAX, SubQueue, check_entity_name, parse_path
from bridge.model.rule import Rule
from bridge.model.rules import EXPRESSION_LENGTH_MAX, sql
from bridge.relay.plan import keys
from bridge.relay.plan.faults import Faults, similar
from bridge.relay.plan.positions import Path
from bridge.relay.plan.route import COMPLETE, DEAD_LETTER, WILDCARD, Place, Route
from bridge.relay.plan.side import Side

_SUBSCRIPTIONS = "/subscriptions/"


class RouteTables:
    """Reads the routes, and notes what is wrong with them.

    Args:
        sides: all, by their names.
        new_id: the source of `newid()` in filters.

    Attributes:
        places: name of a route -> its place in the file.
        faulty: names of routes whose `from` is no place.
    """

    def __init__(
        self, faults: Faults, sides: Mapping[str, Side], new_id: Callable[[], UUID]
    ) -> None:
        self.places: dict[str, int] = {}
        self.faulty: set[str] = set()
        self._faults = faults
        self._sides = sides
        self._new_id = new_id

    def read(self, values: Any) -> dict[str, Route]:
        """Return the routes whose `from` is a place, by their names."""
        if not isinstance(values, list) or not values:
            self._faults.add(("routes",), "There are no routes: a table [[routes]] for each.")
            return {}
        found: dict[str, Route] = {}
        for place, table in enumerate(values):
            path: Path = ("routes", place)
            route = self._route(path, self._faults.table(table, path, keys.ROUTE), table)
            if route is None:
                continue
            if route.name in found:
                line = self._faults.positions.of_key(("routes", self.places[route.name])).line
                text = f"There is a route {route.name!r} already, at line {line}: give a name."
                self._faults.add((*path, "name"), text)
                continue
            if "[" in route.name or "]" in route.name:
                text = "name: it has no '[' and no ']': routes of a '*' are called so."
                self._faults.add((*path, "name"), text)
            if route.name in (COMPLETE, DEAD_LETTER):
                self._faults.add(
                    (*path, "name"), f"name: `else` calls something else {route.name!r}."
                )
            found[route.name] = route
            self.places[route.name] = place
        return found

    def _route(self, path: Path, given: dict[str, Any], table: Any) -> Route | None:
        ends: dict[str, Place | None] = {}
        for key in ("from", "to"):
            if key in given:
                ends[key] = self.place((*path, key), given[key])
            elif not isinstance(table, dict) or key not in table:
                self._faults.add(path, f"The route has no {key!r}: SIDE/ENTITY.", at_key=True)
        source, target = ends.get("from"), ends.get("to")
        if source is not None:
            self._check_source((*path, "from"), source)
        if target is not None:
            self._check_target((*path, "to"), target, source)
        if "else" in given and "filter" not in given:
            self._faults.add((*path, "else"), "else: without a filter there are no others.")
        if "filter" in given and "else" not in given:
            text = (
                'filter: say what becomes of the other messages: else = "complete" (they are '
                'gone), "dead-letter", or the name of a route.'
            )
            self._faults.add((*path, "filter"), text, at_key=True)
        compiled = self._filter((*path, "filter"), given.get("filter"))
        if source is None:
            self.faulty.add(str(given.get("name", given.get("from", ""))))
            return None
        return Route(
            name=given.get("name", given["from"]),
            source=source,
            target=target or source,  # which is a fault, but not the only one perhaps
            filter=compiled,
            filter_text=given.get("filter", ""),
            otherwise=given.get("else", COMPLETE),
            rate_per_s=given.get("rate"),
            order=given.get("order", "none"),
            on_refused=given.get("on-refused", "stop"),
            duplicates=given.get("duplicates"),
            states=given.get("states", False),
            reply_to=given.get("reply-to", {}),
            **{
                name: given[key]
                for key, name in (
                    ("sessions", "sessions_at_once"), ("outage_s", "outage_s"), ("credit", "credit")
                )
                if key in given
            },
        )  # fmt: skip

    def place(self, path: Path, text: str) -> Place | None:
        """Return what a text names; `None` if it, or its side, has a fault."""
        key = path[-1]
        name, mark, entity = text.strip().partition("/")
        if not mark or not entity:
            self._faults.add(path, f"{key}: {text!r} is no place: write SIDE/ENTITY.")
            return None
        if name not in self._sides:
            text = f"{key}: there is no side {name!r}{similar(name, self._sides)}."
            self._faults.add(path, text)
            return None
        if entity.count(WILDCARD) > 1:
            self._faults.add(path, f"{key}: there is one '*' at most.")
            return None
        try:
            _check_path(entity.replace(WILDCARD, "x"))
        except ServiceBusError as error:
            self._faults.add(path, f"{key}: {error}")
            return None
        return Place(self._sides[name], entity)

    def _check_source(self, path: Path, source: Place) -> None:
        found = parse_path(source.path.replace(WILDCARD, "x"))
        if found.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            self._faults.add(path, "from: a transfer dead-letter queue is no source of a relay.")

    def _check_target(self, path: Path, target: Place, source: Place | None) -> None:
        if not is_top_level(target.path.replace(WILDCARD, "x")):
            text = "to: a message is sent to a queue or a topic, not to a part of one."
            self._faults.add(path, text)
        if source is None:
            return
        if target.is_pattern and not source.is_pattern:
            self._faults.add(path, "to: it has a '*', and `from` has none.")
        if target.side.id.lower() == source.side.id.lower():
            self._faults.add(
                path,
                f"to: both places are at {target.side.id!r}; within a namespace ForwardTo does "
                "this. Two namespaces behind one host need an `id` each.",
            )

    def _filter(self, path: Path, text: str | None) -> CompiledFilter | None:
        if text is None:
            return None
        if len(text) > EXPRESSION_LENGTH_MAX:
            limit = f"{EXPRESSION_LENGTH_MAX:,}"
            self._faults.add(
                path, f"filter: it has {len(text):,} characters; {limit} are the most."
            )
            return None
        try:
            rule = Rule(name="filter", filter=sql(text))
            check_rule(rule)
            for each in mismatches(rule):
                self._faults.add(path, f"filter: {each}")
            return compile_filter(rule.filter, self._new_id)
        except ServiceBusError as error:
            self._faults.add(path, f"filter: {error}")
            return None


def is_top_level(path: str) -> bool:
    """Whether a path names a queue or a topic, and no part of one."""
    found = parse_path(path)
    return not (
        found.sub_queue is not SubQueue.NONE or found.is_management or _SUBSCRIPTIONS in found.key
    )


def _check_path(path: str) -> None:
    """Raise ArgumentError if a path names no entity and no dead-letter queue."""
    found = parse_path(path)
    if f"{found.key}/".endswith(_SUBSCRIPTIONS):
        raise ArgumentError("It names no subscription: TOPIC/Subscriptions/NAME.")
    if _SUBSCRIPTIONS in found.key:
        at = found.key.index(_SUBSCRIPTIONS)
        check_entity_name(found.entity[:at], what="topic")
        check_entity_name(
            found.entity[at + len(_SUBSCRIPTIONS) :],
            length_max=SHORT_NAME_LENGTH_MAX,
            what="subscription",
        )
    if found.is_management:
        check_entity_name("$management")
