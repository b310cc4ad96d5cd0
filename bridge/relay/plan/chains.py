"""Routes of one source: the first receives, and `else` leads from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from bridge.relay.plan.faults import similar
from bridge.relay.plan.route import COMPLETE, DEAD_LETTER, Place, Route

Found = tuple[str, str, str]
"""The name of a route, the key at which the fault is, and the fault."""


def chain_faults(routes: Mapping[str, Route], faulty: Set[str]) -> Iterator[Found]:
    """Yield what is wrong: an `else` that leads nowhere, or two routes that share a source.

    Args:
        faulty: names of other routes, of which a fault is known already.
    """
    led_to: dict[str, str] = {}
    for name, route in routes.items():
        other = route.otherwise
        if other in (COMPLETE, DEAD_LETTER) or other in faulty:
            continue
        if other not in routes:
            known = [COMPLETE, DEAD_LETTER, *routes]
            yield name, "else", f"else: there is no route {other!r}{similar(other, known)}."
        elif _key(routes[other].source) != _key(route.source):
            text = f"else: the route {other!r} is from {routes[other].source}, not from here."
            yield name, "else", text
        elif other in led_to:
            yield name, "else", f"else: {led_to[other]!r} leads to {other!r} already."
        elif _comes_back(name, routes):
            yield name, "else", f"else: it leads back to {name!r}."
        else:
            led_to[other] = name
    firsts: dict[tuple[str, str], str] = {}
    for name, route in routes.items():
        if name in led_to:
            continue
        first = firsts.setdefault(_key(route.source), name)
        if first != name:
            yield name, "from", _shared(first, route)


def _shared(first: str, route: Route) -> str:
    return (
        f"from: the route {first!r} receives from {route.source} already, and each message would "
        f'go to one of the two by chance: give that one a filter, and else = "{route.name}".'
    )


def _key(place: Place) -> tuple[str, str]:
    return place.side.id.lower(), place.path.lower()


def _comes_back(name: str, routes: Mapping[str, Route]) -> bool:
    seen: set[str] = set()
    at = name
    while at in routes and at not in seen:
        seen.add(at)
        at = routes[at].otherwise
    return at == name
