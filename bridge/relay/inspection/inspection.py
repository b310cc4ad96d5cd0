"""What is wrong with a relay's file, as the namespaces show it, and what to know about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from bridge.model.errors import ServiceBusError
from bridge.relay.entities import facts_at, filters_at, forwards_at, sources_at
from bridge.relay.inspection.finding import Finding
from bridge.relay.plan.circles import Forward, Node, circles, keeps_out
from bridge.relay.plan.expansion import Expansion, expanded
from bridge.relay.plan.fidelity import EntityFacts, Level, remarks, rule_remark
from bridge.relay.plan.file import Reading
from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.plan.side import Side
from bridge.relay.plan.source_identity import source_name
from bridge.relay.running.namespaces import Namespaces, address_of
from bridge.remote.address import AMQP_PORT, AMQPS_PORT
from bridge.remote.errors import (
    RemoteConnectionLost,
    RemoteError,
    RemoteNotFound,
    RemoteRefused,
    RemoteUnauthorized,
)
from bridge.remote.patience import Patience

PATIENCE = Patience(total_s=10)
"""A check is somebody's question: it waits a while, and less than a relay."""

SIDE_WITHOUT_MANAGE = (
    "The right Manage is missing, or administration does not answer, at this side: what its "
    "entities are like is not known, and is not checked."
)


@dataclass(frozen=True, slots=True)
class _Target:
    """What an attempt to send has shown."""

    is_there: bool = False
    is_busbridge: bool = False


class Inspection:
    """Looks at the routes of a file that has no faults of its own.

    Nothing is received, sent or changed.

    Args:
        reading: the file.
        sides: its sides, with `PATIENCE`.

    Attributes:
        expansion: the routes with a `*` as routes of what is there; after `findings`.
    """

    def __init__(self, reading: Reading, sides: Namespaces) -> None:
        self._reading = reading
        self._file = reading.whole()
        self._sides = sides
        self._facts: dict[tuple[str, str, str], EntityFacts | None] = {}
        self._unknown: set[str] = set()
        self._away: dict[str, RemoteConnectionLost] = {}
        self.expansion = Expansion(self._file)

    async def findings(self) -> AsyncIterator[Finding]:
        """Yield what there is to say, an error where the relay is not to run."""
        for one, other in same_namespaces(self._file.sides.values()):
            position = self._reading.positions.of_key(("sides", other.name))
            text = (
                f"{one.name!r} and {other.name!r} are one namespace by two ids, {one.id!r} and "
                f"{other.id!r}: a circle would not be found, and what comes back not be known."
            )
            yield Finding(position, "error", "", text)
        entities: dict[str, list[str]] = {}
        for side, patterns in self._file.patterns.items():
            try:
                administration = self._sides.administration_of(self._file.sides[side])
                entities[side] = await sources_at(administration, patterns)
            except RemoteError as error:
                for route in self._file.routes:
                    if route.source in patterns:
                        text = f"A '*' needs the right Manage at {side!r}: {_sentence(error)}"
                        yield self._finding("error", route.name, "from", text)
        self.expansion = expanded(self._file, entities)
        for source, (first, second) in self.expansion.shared.items():
            text = f"{source} is among the entities of {first!r} already, which has it."
            yield self._finding("error", second, "from", text)
        origins = set(self.expansion.origins.values())
        for route in self._file.routes:
            if route.source.side.name in entities and route.name not in origins:
                text = f"There is no entity {route.source} now."
                yield self._finding("warning", route.name, "from", text)
        async for each in self._control(self._file):
            yield each
        for route in self.expansion.file.routes:
            async for each in self._route(route):
                yield each
        for side in sorted(self._unknown):
            position = self._reading.positions.of_key(("sides", side))
            yield Finding(position, "warning", "", SIDE_WITHOUT_MANAGE)
        async for each in self._circles():
            yield each

    def _finding(self, level: Level, name: str, key: str, text: str) -> Finding:
        """Return a finding about a route of the file, or about one that a `*` stands for."""
        origin = self.expansion.origins.get(name, name)
        return Finding(self._reading.of_route(origin, key), level, name, text)

    async def facts(self, place: Place) -> EntityFacts | None:
        """Return what an entity is like; `None` where that is not to be known."""
        if place.key in self._facts:
            return self._facts[place.key]
        found = None
        if place.side.name not in self._unknown:
            try:
                found = await facts_at(self._sides.administration_of(place.side), place)
            except RemoteNotFound:  # which an attempt to attach says, too
                pass
            except RemoteError:  # administration has a port of its own: messages may go
                self._unknown.add(place.side.name)
        self._facts[place.key] = found
        return found

    async def _control(self, file: RelayFile) -> AsyncIterator[Finding]:
        place = file.control
        if place is None:
            return
        position = self._reading.positions.of_value(("control",))
        found = await self.facts(place)
        advice = "make it with `busbridge relay init`."
        if found is None and place.side.name not in self._unknown:
            yield Finding(position, "error", "", f"There is no control queue {place}: {advice}")
        elif found is not None and not (found.kind == "Queue" and found.requires_session):
            text = f"{place} is no queue with sessions: choose another name, and {advice}"
            yield Finding(position, "error", "", text)
        fault = await self._fault_of_listening(place, found)
        if fault and found is not None:
            yield Finding(position, "error", "", fault)

    async def _route(self, route: Route) -> AsyncIterator[Finding]:
        source, target = await self.facts(route.source), await self.facts(route.target)
        if fault := await self._fault_of_listening(route.source, source):
            yield self._finding("error", route.name, "from", fault)
        if route.states and (fault := await self._fault_of_listening(route.target, target)):
            yield self._finding("error", route.name, "states", fault)
        faults, tried = await self._attempt(route)
        for fault in faults:
            yield self._finding("error", route.name, "to", fault)
        if not tried.is_there:
            return
        for each in remarks(route, source, target, target_is_busbridge=tried.is_busbridge):
            yield self._finding(each.level, route.name, each.key, each.text)

    async def _fault_of_listening(self, place: Place, facts: EntityFacts | None) -> str:
        """Return why messages of a place cannot be received; "" if they can."""
        if facts is not None and facts.kind == "Topic":
            return ""  # which a remark says
        has_sessions = facts is not None and facts.requires_session and not place.is_dead_letter
        try:
            self._check_reached(place.side)
            namespace = self._sides.of(place.side)
            await (await namespace.management(place.path)).peek(0, 1)
            if not has_sessions:  # a session is not accepted: its lock could keep others out
                await (await namespace.receiver(place.path)).close()
        except RemoteNotFound:
            return f"There is no entity {place}."
        except RemoteUnauthorized as error:
            return _missing("Listen", place, error)
        except RemoteRefused as error:
            if facts is None and "session" in str(error).lower():
                return ""
            return f"{place} is not received from: {_sentence(error)}"
        except RemoteError as error:
            self._note(place.side, error)
            return f"{place} is not reached: {_sentence(error)}"
        return ""

    def _note(self, side: Side, error: RemoteError) -> None:
        """Remember that a side is away: each question to it would wait as long again."""
        if isinstance(error, RemoteConnectionLost):
            self._away[side.name] = error

    def _check_reached(self, side: Side) -> None:
        if side.name in self._away:
            raise self._away[side.name]

    def is_away(self, side: Side) -> bool:
        """Whether a side was found not to answer."""
        return side.name in self._away

    async def _attempt(self, route: Route) -> tuple[list[str], _Target]:
        """Try to attach a sender; return what is wrong, and what that has shown."""
        place = route.target
        source = source_name(route.source.side.id, route.source.path)
        try:
            self._check_reached(place.side)
            namespace = self._sides.of(place.side)
            sender = await namespace.sender(place.path, relay_source=source)
            is_busbridge = sender.knows_source
            await sender.close()
        except RemoteNotFound:
            return [f"There is no entity {place}: make it first."], _Target()
        except RemoteUnauthorized as error:
            return await self._without_source(place, error), _Target()
        except RemoteError as error:
            self._note(place.side, error)
            return [f"{place} is not sent to: {_sentence(error)}"], _Target()
        return [], _Target(True, is_busbridge)

    async def _without_source(self, place: Place, error: RemoteError) -> list[str]:
        """Return which right is missing: a bridge wants Manage from who names a source."""
        try:
            namespace = self._sides.of(place.side)
            await (await namespace.sender(place.path)).close()
        except RemoteError:
            return [_missing("Send", place, error)]
        return [
            f"The right Manage on {place} is missing: a bridge numbers no message of a relay "
            f"twice, and takes the word of who may Manage for it. {_sentence(error)}"
        ]

    async def _circles(self) -> AsyncIterator[Finding]:
        for each in circles(self.expansion.file.routes, await self._forwards()):
            first = each.routes[0].name
            if each.is_of_dead_letters:
                text = (
                    f"A circle of dead letters: {each}. What dies in it again goes round for ever."
                )
                yield self._finding("warning", first, "to", text)
            elif each.is_of_topics:
                for route in each.routes:
                    if await self._keeps_out(route):
                        continue
                    remark = rule_remark(route)
                    yield self._finding(remark.level, route.name, remark.key, remark.text)
            else:
                text = f"A circle: {each}. A message would go round in it, and no consumer have it."
                if all(route.source.is_subscription for route in each.routes):
                    text = f"A circle: {each}. What is forwarded in it comes there twice."
                yield self._finding("error", first, "to", text)

    async def _forwards(self) -> list[Forward]:
        """Return what is forwarded of all that the targets of routes lead to."""
        found: list[Forward] = []
        seen: set[Node] = set()
        waiting = [
            (each.target.side, each.target.entity.entity) for each in self.expansion.file.routes
        ]
        for side, name in waiting:
            node = side.id.lower(), name.lower()
            if node in seen or side.name in self._unknown or self.is_away(side):
                continue
            seen.add(node)
            try:
                made = await forwards_at(self._sides.administration_of(side), side.id, name)
            except RemoteError:  # which has been said of its facts, where it is a target
                continue
            found += made
            waiting += [(side, each.target[1]) for each in made]
        return found

    async def _keeps_out(self, route: Route) -> bool:
        """Whether rules are known to keep out of a route what has been at its target before."""
        side = route.source.side
        if side.name in self._unknown:
            return False
        try:
            filters = await filters_at(self._sides.administration_of(side), route.source)
        except (RemoteError, ServiceBusError):
            return False
        return keeps_out(filters, route.target.mark)


def same_namespaces(sides: Iterable[Side]) -> list[tuple[Side, Side]]:
    """Return sides that are reached at one place, and whose ids differ: each with the first."""
    firsts: dict[tuple[str, str, int, bool], Side] = {}
    found = []
    for side in sides:
        address = address_of(side)
        port = address.port if address.is_port_given else 0
        if port == (AMQPS_PORT if address.tls else AMQP_PORT):
            port = 0
        key = address.hostname.lower(), address.host.lower(), port, address.tls
        first = firsts.setdefault(key, side)
        if first.id.lower() != side.id.lower():
            found.append((first, side))
    return found


def _missing(right: str, place: Place, error: RemoteError) -> str:
    """Return that a right is missing, or that the key is wrong where the namespace says so."""
    if "InvalidSignature" in str(error):
        return f"The key of {place.side.name!r}, or its rule's name, is wrong: {_sentence(error)}"
    return f"The right {right} on {place} is missing: {_sentence(error)}"


def _sentence(error: RemoteError) -> str:
    text = (error.description or error.condition).rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
