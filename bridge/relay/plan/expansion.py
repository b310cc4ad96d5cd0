"""Routes with a `*`, and the entities that they stand for.

A route whose source has a `*` stands for a route an entity that is there. Its name is the route's
with the entity's path in brackets. In the target `*` alone is the name of the source, if that is a
queue; otherwise `*` is what the source's `*` stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bridge.model.name import parse_path
from bridge.relay.plan.choice import chain
from bridge.relay.plan.route import COMPLETE, DEAD_LETTER, WILDCARD, Place, RelayFile, Route

_SUBSCRIPTIONS = "/subscriptions/"


@dataclass(frozen=True, slots=True)
class Expansion:
    """What the routes of a file stand for at a time.

    Attributes:
        file: with routes none of whose sources has a `*`.
        origins: name of each route -> the name of the file's route that stands for it.
        shared: sources that two routes of the file stand for -> the names of these; the first has
            it.
    """

    file: RelayFile
    origins: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def expanded(file: RelayFile, entities: Mapping[str, Iterable[str]]) -> Expansion:
    """Return the routes for the entities that are there.

    An entity that a route names itself is not among those of a `*`, and the control queue is not.

    Args:
        entities: name of a side -> the paths of its queues, and of its topics' subscriptions.
    """
    found: list[Route] = []
    origins: dict[str, str] = {}
    shared: dict[str, tuple[str, str]] = {}
    taken = {each.source.key: "" for each in file.routes if not each.source.is_pattern}
    if file.control is not None:
        taken[file.control.key] = ""
    for first in file.first_routes:
        routes = chain(file, first)
        if not first.source.is_pattern:
            found += routes
            origins |= {each.name: each.name for each in routes}
            continue
        for path, part in _matches(first.source, entities.get(first.source.side.name, ())):
            source = _source(first.source, path)
            other = taken.setdefault(source.key, first.name)
            if other == first.name:
                made = [_of(each, path, part) for each in routes]
                found += made
                origins |= {new.name: old.name for new, old in zip(made, routes, strict=True)}
            elif other:
                shared[str(source)] = (other, first.name)
    return Expansion(RelayFile(file.sides, tuple(found), file.control), origins, shared)


def name_at(name: str, path: str) -> str:
    """Return the name of the route that a route with a `*` stands for at an entity."""
    return f"{name}[{path}]"


def _sub_queue(path: str) -> str:
    """Return the end of a path that names a sub-queue, as it is written there; "" for none."""
    found = parse_path(path.replace(WILDCARD, "x")).sub_queue.value
    return path[len(path) - len(found) - 1 :] if found else ""


def _matches(source: Place, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of entities that a pattern stands for, and what `*` is in each."""
    pattern = source.path.removesuffix(_sub_queue(source.path))
    before, _, after = pattern.partition(WILDCARD)
    shape = re.compile(f"{re.escape(before)}(.+){re.escape(after)}", re.IGNORECASE)
    is_subscription = _SUBSCRIPTIONS in pattern.lower()
    for path in sorted(paths):
        found = shape.fullmatch(path)
        if found is None or (_SUBSCRIPTIONS in path.lower()) != is_subscription:
            continue
        if _SUBSCRIPTIONS not in found[1].lower():  # `*` is a part of one name
            yield path, found[1]


def _source(pattern: Place, path: str) -> Place:
    return Place(pattern.side, path + _sub_queue(pattern.path))


def _of(route: Route, path: str, part: str) -> Route:
    target, otherwise = route.target.path, route.otherwise
    if target == WILDCARD and _SUBSCRIPTIONS not in path.lower():
        target = path
    else:
        target = target.replace(WILDCARD, part)
    return replace(
        route,
        name=name_at(route.name, path),
        source=_source(route.source, path),
        target=Place(route.target.side, target),
        otherwise=otherwise if otherwise in (COMPLETE, DEAD_LETTER) else name_at(otherwise, path),
    )
