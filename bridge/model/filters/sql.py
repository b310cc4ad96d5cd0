"""SQL filters: text -> a filter ready to be evaluated.

A filter's equality terms are the ANDed conditions (or the only condition) that compare a property
for equality with one constant or several. The terms are evaluated first: where a term is not true
the filter does not take the message, whatever the other conditions would give or fail on. So the
answer is the same whether an index found the filter or not. The other ANDed conditions end at the
first that is not true.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

from bridge.model.entity import SqlFilter
from bridge.model.filters.compiled import CompiledFilter, Predicate, Term
from bridge.model.filters.errors import FilterException
from bridge.model.filters.evaluation import NewGuid, compile_condition
from bridge.model.filters.expression import And, Comparison, Constant, Expression, In
from bridge.model.filters.expression import Predicate as Condition
from bridge.model.filters.message import SYSTEM_PROPERTIES, FilteredMessage, Property
from bridge.model.filters.parser import parse_filter
from bridge.model.filters.values import Value, ValueKind, compares_with_all

KEPT_MAX = 8_192
"""Compiled filters that are kept: a changed definition compiles only its changed filters."""


def compile_sql(source: SqlFilter, new_id: NewGuid) -> CompiledFilter:
    """Return the filter; InvalidRule when the text is invalid."""
    if not source.parameters:
        return _compiled(source.expression, new_id)
    parameters: Mapping[str, Value] = dict(source.parameters)
    return _of_tree(parse_filter(source.expression, parameters), new_id)


@lru_cache(KEPT_MAX)
def _compiled(text: str, new_id: NewGuid) -> CompiledFilter:
    return _of_tree(parse_filter(text), new_id)


def _of_tree(tree: Condition, new_id: NewGuid) -> CompiledFilter:
    conditions = tree.operands if isinstance(tree, And) else (tree,)
    terms = [(each, term) for each in conditions if (term := _term(each)) is not None]
    first = [compile_condition(each, new_id) for each, _ in terms]
    of_terms = {id(each) for each, _ in terms}
    rest = [compile_condition(each, new_id) for each in conditions if id(each) not in of_terms]
    return CompiledFilter(
        # The digest, not the tree: a deep tree takes long to hash, and each change does it.
        ("sql", blake2b(repr(tree).encode("utf-8", "surrogatepass"), digest_size=16).digest()),
        _terms_first(first, _every(rest)) if first else _every(rest),
        tuple(dict.fromkeys(term for _, term in terms)),
        is_typed=True,
    )


def _every(conditions: list[Predicate]) -> Predicate:
    """Return the AND of all conditions; most filters have one or two."""
    if len(conditions) == 1:
        return conditions[0]
    if len(conditions) == 2:
        first, second = conditions
        return lambda message: first(message) and second(message)

    def predicate(message: FilteredMessage) -> bool | None:
        for condition in conditions:
            found = condition(message)
            if not found:
                return found
        return True

    return predicate


def _terms_first(terms: list[Predicate], rest: Predicate) -> Predicate:
    if len(terms) == 1:
        (only,) = terms
        return lambda message: only(message) and rest(message)

    def predicate(message: FilteredMessage) -> bool | None:
        failure: FilterException | None = None
        for term in terms:
            try:
                if not term(message):
                    return False
            except FilterException as error:
                failure = error
        if failure is not None:
            raise failure
        return rest(message)

    return predicate


def _term(condition: Condition) -> Term | None:
    match condition:
        case Comparison("=", Property() as of, Constant() as constant):
            return _equals(of, (constant,))
        case Comparison("=", Constant() as constant, Property() as of):
            return _equals(of, (constant,))
        case In(Property() as of, choices):
            return _equals(of, choices)
    return None


def _equals(of: Property, choices: tuple[Expression, ...]) -> Term | None:
    """Return the term; `None` unless all choices are constants of one kind.

    A term is only false where it is not true: a constant that a number may not be comparable with
    makes none.
    """
    if of.is_system and of.name not in SYSTEM_PROPERTIES:
        return None
    constants = [each for each in choices if isinstance(each, Constant)]
    kinds = {each.kind for each in constants}
    if len(constants) < len(choices) or len(kinds) != 1 or kinds & {None, ValueKind.OTHER}:
        return None
    if not all(compares_with_all(each.value) for each in constants):
        return None
    return Term.equals(of, *(each.value for each in constants))
