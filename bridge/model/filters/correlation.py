"""Correlation filters: every given field equals the message's; case counts (Azure, topic filters).

A value of another type is another value: such a filter never fails.
"""

from __future__ import annotations

from bridge.model.entity import CorrelationFilter
from bridge.model.filters.compiled import CompiledFilter, Property, Term
from bridge.model.filters.errors import InvalidRule
from bridge.model.filters.message import Message
from bridge.model.filters.values import Kind, index_key, kind_of

_FIELDS = (
    "content_type",
    "correlation_id",
    "label",
    "message_id",
    "reply_to",
    "reply_to_session_id",
    "session_id",
    "to",
)


def compile_correlation(source: CorrelationFilter) -> CompiledFilter:
    """Return the filter; InvalidRule when it compares nothing, or with what has no operators."""
    given = [(Property(True, name.replace("_", "")), getattr(source, name)) for name in _FIELDS]
    given += [(Property(False, name.lower()), value) for name, value in source.properties]
    pairs = [(of, value) for of, value in given if value is not None]
    if not pairs:
        raise InvalidRule("A correlation filter names at least one field or property.")
    for of, value in pairs:
        if kind_of(value) is Kind.OTHER:
            raise InvalidRule(f"A correlation filter cannot compare {of.name!r} with {value!r}.")
    terms = tuple(dict.fromkeys(Term.equals(of, value) for of, value in pairs))

    def predicate(message: Message) -> bool:
        return all(_holds(term, message) for term in terms)

    return CompiledFilter(("correlation", frozenset(terms)), predicate, terms)


def _holds(term: Term, message: Message) -> bool:
    value = term.of.read(message)
    return value is not None and kind_of(value) is term.kind and index_key(value) in term.keys
