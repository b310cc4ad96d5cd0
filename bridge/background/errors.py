"""Errors of background work."""

from __future__ import annotations

from bridge.model.errors import ServiceBusError


class OutsideError(Exception):
    """The base of errors whose cause is outside of the bridge: logged without a traceback."""


class EndedEarly(Exception):
    """Work that is meant to run for ever has returned, or was cancelled though nobody asked."""


def trace_of(error: BaseException) -> BaseException | None:
    """Return an error whose traceback belongs in the log; `None` if its text says everything."""
    foreseen = OutsideError | ServiceBusError | OSError | TimeoutError
    has_returned = isinstance(error, EndedEarly) and error.__cause__ is None
    return None if has_returned or isinstance(error, foreseen) else error
