"""What a route keeps, what it cannot keep, and what it would lose: of two entities' properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from bridge.model import values
from bridge.model.duration import format_duration, is_forever
from bridge.model.rules import EXPRESSION_LENGTH_MAX
from bridge.relay.plan.circles import rule_against
from bridge.relay.plan.route import Route
from bridge.remote.entity import RemoteEntity

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Remark:
    """What there is to say about a route.

    Attributes:
        level: "error": the route is not to run so; "warning": something is lost or refused;
            "note": what to know.
        key: the key of the route's table that it is about.
    """

    level: Level
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What an entity's description says, as far as a route depends on it.

    Attributes:
        kind: `Queue`, `Topic` or `Subscription`.
        window_ms: how long duplicates are detected; `None`: not at all. A subscription's is its
            topic's.
        ttl_ms: its default TTL, the longest that a message has; `None` for no end.
        message_bytes_max: the largest message; `None` if it does not say.
        forward_to, forward_dead_letters_to: where it sends its messages, and its dead letters, by
            itself; "" for nowhere.
        scheduled: messages that wait for their time.
    """

    kind: str
    requires_session: bool = False
    window_ms: int | None = None
    ttl_ms: int | None = None
    is_partitioned: bool = False
    message_bytes_max: int | None = None
    forward_to: str = ""
    forward_dead_letters_to: str = ""
    status: str = "Active"
    scheduled: int = 0

    @classmethod
    def of(cls, entity: RemoteEntity, topic: RemoteEntity | None = None) -> Self:
        """Return the facts of an entity; of a subscription with those of its topic."""
        given = entity.properties
        whole = entity if topic is None else topic
        kilobytes = whole.properties.get("MaxMessageSizeInKilobytes", "")
        detects = _flag(whole.properties, "RequiresDuplicateDetection")
        ttl_ms = _span(given, "DefaultMessageTimeToLive")
        return cls(
            kind=entity.kind,
            requires_session=_flag(given, "RequiresSession"),
            window_ms=_span(whole.properties, "DuplicateDetectionHistoryTimeWindow")
            if detects
            else None,
            ttl_ms=None if ttl_ms is None or is_forever(ttl_ms) else ttl_ms,
            is_partitioned=_flag(whole.properties, "EnablePartitioning"),
            message_bytes_max=int(kilobytes) * 1024 if kilobytes.isdecimal() else None,
            forward_to=given.get("ForwardTo", ""),
            forward_dead_letters_to=given.get("ForwardDeadLetteredMessagesTo", ""),
            status=entity.status or "Active",
            scheduled=entity.counts.scheduled,
        )


def _flag(given: Mapping[str, str], name: str) -> bool:
    return given.get(name, "").lower() == "true"


def _span(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "")
    return values.duration_ms(text) if text else None


ALWAYS = (
    "SequenceNumber, EnqueuedTimeUtc and DeliveryCount are the target's own: number and time at "
    "the source go along as the properties repl-sequence and repl-enqueue-time. Scheduled and "
    "deferred messages stay at the source until they are active."
)
"""What no route keeps."""


def remarks(
    route: Route,
    source: EntityFacts | None,
    target: EntityFacts | None,
    *,
    target_is_busbridge: bool,
) -> Iterator[Remark]:
    """Yield what there is to say about a route whose source has no `*`.

    Args:
        source, target: `None` where the login may not read them.
        target_is_busbridge: a bridge numbers no message of the relay's twice.
    """
    if source is not None:
        yield from _of_source(route, source)
    if target is not None:
        yield from _of_target(route, target)
    if source is not None and target is not None:
        yield from _of_both(route, source, target)
    yield from _of_duplicates(route, source, target, target_is_busbridge)
    if route.filter_text and route.source.is_subscription and not route.source.is_dead_letter:
        text = (
            "The filter stands better in a rule of the subscription, which then keeps only what is "
            f"to go: {route.filter_text}"
        )
        yield Remark("note", "filter", text)


def _of_source(route: Route, source: EntityFacts) -> Iterator[Remark]:
    is_dead_letter = route.source.is_dead_letter
    if source.kind == "Topic":
        text = f"{route.source} is a topic: name a subscription, TOPIC/Subscriptions/NAME."
        yield Remark("error", "from", text)
    elif source.forward_to and not is_dead_letter:
        text = f"{route.source} forwards its messages to {source.forward_to!r}: nobody receives."
        yield Remark("error", "from", text)
    elif source.forward_dead_letters_to and is_dead_letter:
        to = source.forward_dead_letters_to
        yield Remark("error", "from", f"{route.source} is forwarded to {to!r}: nobody receives.")
    if source.status in ("Disabled", "ReceiveDisabled") and not is_dead_letter:
        yield Remark("error", "from", f"{route.source} is {source.status}.")
    if source.scheduled and not is_dead_letter:
        text = f"{route.source} has {source.scheduled:,} scheduled messages, which go when due."
        yield Remark("note", "from", text)
    if route.states and (not source.requires_session or is_dead_letter):
        yield Remark("error", "states", f"{route.source} has no sessions, and so no states.")
    if source.requires_session and not is_dead_letter and not route.states:
        yield Remark("note", "states", "The states of sessions stay behind: states = true.")
    if route.order == "none" and not source.requires_session:
        text = 'Messages can overtake one another: order = "entity" keeps the order of the entity.'
        yield Remark("note", "order", text)
    elif route.order == "entity" and source.is_partitioned:
        text = f"{route.source} is partitioned: it has an order within each partition alone."
        yield Remark("warning", "order", text)


def _of_target(route: Route, target: EntityFacts) -> Iterator[Remark]:
    if target.status in ("Disabled", "SendDisabled"):
        yield Remark("error", "to", f"{route.target} is {target.status}.")
    if route.states and target.kind == "Topic":
        yield Remark("error", "states", f"{route.target} is a topic, which has no sessions itself.")
    completes_returned = route.source.is_subscription and not route.source.is_dead_letter
    if target.window_ms is not None and not completes_returned:
        text = (
            f"{route.target} drops what has been there within {format_duration(target.window_ms)} "
            "and comes back: turn a route around when that is over."
        )
        yield Remark("warning", "to", text)


def _of_both(route: Route, source: EntityFacts, target: EntityFacts) -> Iterator[Remark]:
    has_sessions = source.requires_session and not route.source.is_dead_letter
    if target.requires_session and not source.requires_session:
        text = f"{route.target} wants a SessionId, and refuses each message that has none."
        yield Remark("warning", "to", text)
    if has_sessions and target.kind == "Queue" and not target.requires_session:
        level: Level = "error" if route.states else "warning"
        text = f"{route.target} has no sessions: their order and their states end there."
        yield Remark(level, "to", text)
    if target.ttl_ms is not None and (source.ttl_ms is None or target.ttl_ms < source.ttl_ms):
        text = f"A message lives no longer than {format_duration(target.ttl_ms)} at {route.target}."
        yield Remark("warning", "to", text)
    sizes = source.message_bytes_max, target.message_bytes_max
    if sizes[0] is not None and sizes[1] is not None and sizes[1] < sizes[0]:
        text = (
            f"{route.target} takes messages of {sizes[1] // 1024:,} KB, and {route.source} of "
            f"{sizes[0] // 1024:,} KB: what is larger is refused."
        )
        yield Remark("warning", "to", text)


def _of_duplicates(
    route: Route, source: EntityFacts | None, target: EntityFacts | None, is_busbridge: bool
) -> Iterator[Remark]:
    """Yield whether a message can be lost, or come twice, by its MessageId at the target."""
    given = route.duplicates
    if target is None or (source is None and target.window_ms is not None):
        if given is None and not is_busbridge:
            text = (
                "Without the right Manage on both sides it is not known whether the target detects "
                "duplicates: say what is to be, by `duplicates`."
            )
            yield Remark("error", "duplicates", text)
        return
    if target.window_ms is None:
        if is_busbridge and given is not None:
            text = f"{route.target} is a bridge's: no message of the relay's comes twice there."
            yield Remark("note", "duplicates", text)
        elif not is_busbridge and given != "accept":
            text = (
                f"{route.target} detects no duplicates: a message comes twice when the relay ends "
                'between its confirmation and its completion. Say duplicates = "accept", or make '
                "the target detect them, as long as the source does."
            )
            yield Remark("error", "duplicates", text)
        return
    window_ms = None if source is None else source.window_ms
    is_as_long = window_ms is not None and window_ms >= target.window_ms
    window = format_duration(target.window_ms)
    if is_as_long and not route.source.is_dead_letter:
        if given is not None:
            text = f"{route.source} detects duplicates for as long: `duplicates` says nothing here."
            yield Remark("note", "duplicates", text)
    elif given != "drop":
        text = (
            f"{route.target} drops a message whose MessageId it has seen within {window}, and "
            f"{route.source} can have two of one MessageId in that time: the second would be lost. "
            'Say duplicates = "drop", or choose a target that detects none.'
        )
        yield Remark("error", "duplicates", text)


def rule_remark(route: Route) -> Remark:
    """Return the rule that keeps out of a route in a circle what has been at its target before."""
    text = rule_against(route.target.mark)
    advice = f"a rule of {route.source} in place of one that takes all: {text}"
    if len(text) > EXPRESSION_LENGTH_MAX:
        advice = f"a shorter `id` of {route.target.side.name!r}, for a rule against it"
    return Remark(
        "note",
        "from",
        "Messages come back here through topics: the relay completes them, and counts them as "
        f"returned. What keeps them out in the first place is {advice}",
    )
