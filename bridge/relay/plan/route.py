"""Routes: from one entity to another, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from bridge.model.filters.compiled import CompiledFilter
from bridge.model.name import EntityPath, SubQueue, parse_path
from bridge.relay.plan.side import Side

Order = Literal["none", "entity"]
OnRefused = Literal["stop", "dead-letter"]
Duplicates = Literal["accept", "drop"]

COMPLETE: Final = "complete"
DEAD_LETTER: Final = "dead-letter"
"""What `else` may say beside the name of a route."""

CREDIT: Final = 1_000
SESSIONS_AT_ONCE: Final = 8
OUTAGE_S: Final = 60.0

CONTROL_QUEUE: Final = "busbridge-relay"
"""The name of the control queue that the file's example has."""

WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True)
class Place:
    """An entity, or its dead-letter queue, at a side.

    Attributes:
        path: as Azure writes it: `orders`, `events/Subscriptions/audit`,
            `orders/$DeadLetterQueue`; with one `*` for several entities.
    """

    side: Side
    path: str

    def __str__(self) -> str:
        return f"{self.side.name}/{self.path}"

    @property
    def entity(self) -> EntityPath:
        """The entity and its sub-queue; not of a place with a `*`."""
        return parse_path(self.path)

    @property
    def key(self) -> tuple[str, str, str]:
        """What is equal for two ways to write one place: names have no case."""
        found = self.entity
        return self.side.id.lower(), found.key, found.sub_queue.value

    @property
    def mark(self) -> str:
        """What the marker calls the entity to which a message was sent that comes out here.

        A subscription's is its topic. What comes out of a dead-letter queue was sent to the entity.
        """
        return f"{self.side.id}/{self.entity.key.partition('/subscriptions/')[0]}"

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for several entities."""
        return WILDCARD in self.path

    @property
    def is_dead_letter(self) -> bool:
        """Whether it is a dead-letter queue."""
        return self.path.lower().endswith("/" + SubQueue.DEAD_LETTER.value)

    @property
    def is_subscription(self) -> bool:
        """Whether it is a subscription, or a subscription's dead-letter queue."""
        return "/subscriptions/" in self.path.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of the file; one whose source has a `*` stands for one route an entity.

    Attributes:
        name: what metrics, logs and `else` call it.
        filter: which messages go; `None` for all. InvalidRule's kin at a message: FilterException.
        filter_text: the filter as the file has it; "" for none.
        otherwise: what becomes of the others: `COMPLETE`, `DEAD_LETTER`, or the name of another
            route of the same source, which is asked next.
        rate_per_s: messages a second at most; `None` for no limit.
        order: "none": any number of processes share the route; "entity": one process has it, by a
            session of the control queue, and the order of the entity is kept.
        on_refused: what becomes of the route, or of the message, that the target refuses for good.
        duplicates: "accept": a message may come twice; "drop": of equal MessageIds within the
            target's window one comes; `None`: neither is possible.
        states: whether the states of sessions go along.
        sessions_at_once: sessions that are held at the same time.
        outage_s: how long locks are renewed while the target is away.
        reply_to: addresses in ReplyTo -> what they become.
        credit: messages that may be unconfirmed at the same time.
    """

    name: str
    source: Place
    target: Place
    filter: CompiledFilter | None = None
    filter_text: str = ""
    otherwise: str = COMPLETE
    rate_per_s: float | None = None
    order: Order = "none"
    on_refused: OnRefused = "stop"
    duplicates: Duplicates | None = None
    states: bool = False
    sessions_at_once: int = SESSIONS_AT_ONCE
    outage_s: float = OUTAGE_S
    reply_to: Mapping[str, str] = field(default_factory=dict)
    credit: int = CREDIT


@dataclass(frozen=True, slots=True)
class RelayFile:
    """What a file says.

    Attributes:
        sides: by their names.
        routes: all, those that only `else` leads to among them.
        control: the queue whose sessions are the locks of routes with order "entity", one for each
            source (`source_identity.lock_name`). `None` if no route has that order.
    """

    sides: Mapping[str, Side]
    routes: tuple[Route, ...]
    control: Place | None = None

    @property
    def patterns(self) -> dict[str, list[Place]]:
        """The sources with a `*`, by the names of their sides."""
        found: dict[str, list[Place]] = {}
        for each in self.routes:
            if each.source.is_pattern:
                found.setdefault(each.source.side.name, []).append(each.source)
        return found

    def named(self, name: str) -> Route:
        """Return a route by its name; KeyError if there is none."""
        for each in self.routes:
            if each.name == name:
                return each
        raise KeyError(name)

    @property
    def first_routes(self) -> tuple[Route, ...]:
        """The routes that receive: those that no other's `else` leads to."""
        led_to = {each.otherwise for each in self.routes}
        return tuple(each for each in self.routes if each.name not in led_to)
