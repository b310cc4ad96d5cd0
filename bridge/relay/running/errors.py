"""Errors that end a run of a route; each says why in words for its operator."""

from __future__ import annotations

from bridge.background.errors import OutsideError


class RouteEnded(OutsideError):
    """A run of a route has ended, and is begun again: the cause is outside of the relay."""


class RouteRefused(OutsideError):
    """The target refuses a message for good, and the route says to stop then."""


class SessionTaken(Exception):
    """Another has a session locked."""


class StateRefused(Exception):
    """The target refuses the state of a session for good; the others go on."""
