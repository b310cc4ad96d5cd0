"""Which route takes a message: filters, and what `else` says of the others."""

from __future__ import annotations

from typing import Literal

from bridge.relay.plan.route import COMPLETE, DEAD_LETTER, RelayFile, Route
from bridge.remote.message import RemoteMessage
from bridge.remote.message_view import RemoteMessageView

Choice = Route | Literal["complete", "dead-letter"]


def chain(routes: RelayFile, first: Route) -> tuple[Route, ...]:
    """Return a route that receives, and those that `else` leads to from it, in order."""
    found = [first]
    while found[-1].otherwise not in (COMPLETE, DEAD_LETTER):
        found.append(routes.named(found[-1].otherwise))
    return tuple(found)


def choice(routes: tuple[Route, ...], message: RemoteMessage) -> Choice:
    """Return the first route of a chain whose filter takes a message, or what becomes of it.

    Raises:
        FilterException: a filter cannot be evaluated for it.
    """
    view: RemoteMessageView | None = None
    for route in routes:
        if route.filter is None:
            return route
        view = view or RemoteMessageView(message)
        if route.filter.predicate(view):
            return route
    return DEAD_LETTER if routes[-1].otherwise == DEAD_LETTER else COMPLETE
