"""Errors of rules: at their creation, and at their evaluation for a message."""

from __future__ import annotations

from bridge.model.errors import ArgumentError


class InvalidRule(ArgumentError):
    """The text of a filter or action is not in Service Bus's grammar, or above its limits."""


class CommentInRule(InvalidRule):
    """The text holds the beginning of a comment; there are no comments."""


class FilterException(Exception):
    """A filter or action cannot be evaluated for this message; Azure's name for it.

    The message is dead-lettered in the subscription, with this name as the reason, if the
    subscription has `dead_lettering_on_filter_evaluation_exceptions`.
    """


REASON = FilterException.__name__
"""DeadLetterReason when a filter fails: "exception type name" (Azure, dead-letter queues)."""
