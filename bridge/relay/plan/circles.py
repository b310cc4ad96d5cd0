"""Circles: routes that lead a message back to where it was.

Through queues alone that is an error: no consumer could tell whether it or the relay gets a message
there. Where every part of a circle begins at a subscription, each namespace has the message once
and for all: the relay completes what comes back, and a rule keeps it out in the first place. That
is so by the entities in a message's marker; what a namespace forwards by itself leaves no mark, so
a circle with a ForwardTo in it is an error, too: what comes back would be there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bridge.model.rule import Filter, SqlFilter
from bridge.relay.plan.relayed_message import MARKER
from bridge.relay.plan.route import Place, Route

Node = tuple[str, str]
"""A namespace's id and an entity that takes messages, both in lower case."""


@dataclass(frozen=True, slots=True)
class Forward:
    """What a namespace sends on by itself.

    Attributes:
        by: the path of the queue or subscription that forwards.
        source: where the messages were sent to: the queue, or the subscription's topic.
        target: where they go.
        is_of_dead_letters: it forwards its dead letters, not its messages.
    """

    by: str
    source: Node
    target: Node
    is_of_dead_letters: bool = False


@dataclass(frozen=True, slots=True)
class Circle:
    """Routes each of which begins where the one before it ends; the last leads to the first.

    Attributes:
        forwards: what leads from the end of a route to the beginning of the next one.
    """

    routes: tuple[Route, ...]
    forwards: tuple[Forward, ...] = ()

    @property
    def is_of_topics(self) -> bool:
        """Whether each route begins at a subscription of the topic at which another ends."""
        return not self.forwards and all(each.source.is_subscription for each in self.routes)

    @property
    def is_of_dead_letters(self) -> bool:
        """Whether only what dies on the way goes round."""
        return any(each.is_of_dead_letters for each in self.forwards)

    def __str__(self) -> str:
        parts = [f"{each.source} -> {each.target}" for each in self.routes]
        parts += [
            f"{each.by} forwards {'dead letters ' * each.is_of_dead_letters}to {each.target[1]}"
            for each in self.forwards
        ]
        return ", ".join(parts)


def circles(routes: Sequence[Route], forwards: Iterable[Forward] = ()) -> list[Circle]:
    """Return the circles of routes, each once; those of dead letters last.

    Args:
        routes: none of whose sources has a `*`.
        forwards: what the namespaces forward, as far as that is known.
    """
    known = list(forwards)
    found = _circles(routes, [each for each in known if not each.is_of_dead_letters])
    if any(each.is_of_dead_letters for each in known):
        seen = [each.routes for each in found]
        found += [each for each in _circles(routes, known) if each.routes not in seen]
    return found


def _circles(routes: Sequence[Route], forwards: Iterable[Forward]) -> list[Circle]:
    after = _followers(routes, forwards)
    found = []
    for start in after:
        way = _shortest(start, after)
        if way is not None and start == min(way):
            members = tuple(routes[each] for each in way)
            hops = zip(way, [*way[1:], way[0]], strict=True)
            passed = dict.fromkeys(each for at, other in hops for each in after[at][other])
            found.append(Circle(members, tuple(passed)))
    return found


def rule_against(mark: str) -> str:
    """Return the filter of a rule that keeps out what has been at an entity (`Place.mark`)."""
    name = f"[{MARKER}]"
    text = mark.replace("'", "''")
    like = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    escape = " ESCAPE '\\'" if like != text else ""
    forms = [f"{name} = '{text}'"] + [
        f"{name} LIKE '{form}'{escape}" for form in (f"{like};%", f"%;{like}", f"%;{like};%")
    ]
    return f"{name} IS NULL OR NOT ({' OR '.join(forms)})"


def keeps_out(filters: Iterable[Filter], mark: str) -> bool:
    """Whether all filters of a subscription are the one of `rule_against`: else one may take it."""
    text = rule_against(mark)
    return all(isinstance(each, SqlFilter) and each.expression.strip() == text for each in filters)


def _target(route: Route) -> Node:
    return route.target.side.id.lower(), route.target.entity.key


def _source(place: Place) -> Node:
    """Return where a message is sent that comes out at a place: a subscription's is its topic.

    What comes out of a dead-letter queue was sent to the entity, and somebody had it there.
    """
    found = place.entity
    topic = found.key.partition("/subscriptions/")[0]
    return place.side.id.lower(), f"{topic}/{found.sub_queue.value}".rstrip("/")


def _arrivals(node: Node, after: Mapping[Node, list[Forward]]) -> dict[Node, tuple[Forward, ...]]:
    """Return where a message comes that is sent to a node, and what forwards it there."""
    found: dict[Node, tuple[Forward, ...]] = {node: ()}
    waiting = [node]
    for each in waiting:
        for forward in after.get(each, ()):
            if forward.target not in found:
                found[forward.target] = (*found[each], forward)
                waiting.append(forward.target)
    return found


Followers = Mapping[int, Mapping[int, tuple[Forward, ...]]]


def _followers(routes: Sequence[Route], forwards: Iterable[Forward]) -> Followers:
    """Return for each route those that begin where it ends, and what forwards to there."""
    begin: dict[Node, list[int]] = {}
    for at, route in enumerate(routes):
        begin.setdefault(_source(route.source), []).append(at)
    after: dict[Node, list[Forward]] = {}
    for each in forwards:
        after.setdefault(each.source, []).append(each)
    return {
        at: {
            other: passed
            for node, passed in _arrivals(_target(route), after).items()
            for other in begin.get(node, ())
        }
        for at, route in enumerate(routes)
    }


def _shortest(start: int, after: Followers) -> list[int] | None:
    """Return the shortest way from a route back to it; `None` for none."""
    ways = [[start]]
    seen: set[int] = set()
    while ways:
        further = []
        for way in ways:
            for each in sorted(after[way[-1]]):
                if each == start:
                    return way
                if each not in seen:
                    seen.add(each)
                    further.append([*way, each])
        ways = further
    return None
