"""Rule sets: all rules of a topic against one message, and the copies of each subscription.

    rules = RuleSet.of({subscription: (rule, ...), ...}, new_id=uuid4)   # once a definition
    selection = rules.select(message)                                   # once a message
    for match in selection.matches:     # one copy each, in the order of the subscriptions
        match.subscription, match.rule_name, match.changes
    for failure in selection.failures:  # at most one a subscription
        failure.subscription, failure.rule_name, failure.description

`subscription` is whatever key the caller gave. `message` is a
`bridge.wire.message_view.MessageView` (or any `message.Message`); only the properties that filters
ask for are read. Pure: `new_id` is the source of `newid()`.

A subscription whose matching rules have no action gets one copy: `rule_name` and `changes` are
`None`. Each matching rule with an action gives a copy of its own: `changes` is its action's result,
and the copy carries `rule_name` in the application property `RuleName` (`bridge.wire.rule_copy`
makes it). Both may come together (Azure, topic filters).

A failure says that a rule could not be evaluated and that no other rule gave the subscription a
copy, or that an action could not be evaluated. The caller dead-letters the message, unchanged, in a
subscription with `dead_lettering_on_filter_evaluation_exceptions`, with the reason `errors.REASON`
and the failure's description; in another subscription it drops the message. A rule with an invalid
text fails for every message.

**Cost.** Equal filters are evaluated once. A filter with an equality term (`prop = 'x'`, `prop IN
(...)` among its ANDed conditions, any correlation filter) is found by the hash of the property's
value, through the term that fewest other filters share, and evaluated only when the term holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID

from bridge.model.entity import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter, TrueFilter
from bridge.model.filters.action import Action, compile_action
from bridge.model.filters.changes import Changes
from bridge.model.filters.compiled import CompiledFilter, Term
from bridge.model.filters.correlation import compile_correlation
from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.model.filters.lexer import check_comments
from bridge.model.filters.message import FilteredMessage, Property
from bridge.model.filters.sql import compile_sql
from bridge.model.filters.values import ValueKind, index_key, kind_of

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Match(Generic[S]):
    """A copy for a subscription; unchanged when `changes` is `None`."""

    subscription: S
    rule_name: str | None = None
    changes: Changes | None = None


@dataclass(frozen=True, slots=True)
class Failure(Generic[S]):
    """A rule that could not be evaluated for a message, with the reason."""

    subscription: S
    rule_name: str
    description: str


@dataclass(slots=True)
class Selection(Generic[S]):
    """The copies and failures of a message; both empty: no subscription takes the message."""

    matches: list[Match[S]]
    failures: list[Failure[S]]


def compile_filter(source: Filter, new_id: Callable[[], UUID]) -> CompiledFilter:
    """Return a filter ready to be evaluated; InvalidRule when Service Bus would refuse it."""
    match source:
        case TrueFilter():
            return CompiledFilter(True, lambda message: True)
        case FalseFilter():
            return CompiledFilter(False, lambda message: False)
        case CorrelationFilter():
            return compile_correlation(source)
        case SqlFilter():
            return compile_sql(source, new_id)


def check_rule(rule: Rule) -> None:
    """Raise InvalidRule when Service Bus would refuse the rule's filter or action."""
    if isinstance(rule.filter, SqlFilter):
        check_comments(rule.filter.expression)
    check_comments(rule.action)
    compile_filter(rule.filter, _no_id)
    compile_action(rule.action, _no_id, rule.action_parameters)


def _no_id() -> UUID:
    return UUID(int=0)


@dataclass(slots=True)
class _Target(Generic[S]):
    """A rule of a subscription; `order` is its place among all rules."""

    order: int
    match: Match[S]
    rule_name: str
    action: Action | None = None


@dataclass(slots=True)
class _Filter(Generic[S]):
    compiled: CompiledFilter
    targets: list[_Target[S]] = field(default_factory=list)


@dataclass(slots=True)
class _Index(Generic[S]):
    """The filters for each value of a property."""

    of: Property
    exact: dict[tuple[ValueKind, object], list[_Filter[S]]] = field(default_factory=dict)
    typed: dict[ValueKind, list[_Filter[S]]] = field(default_factory=dict)

    def add(self, term: Term, found: _Filter[S]) -> None:
        """Index a filter by a term."""
        for key in term.keys:
            self.exact.setdefault((term.kind, key), []).append(found)
        if found.compiled.is_typed:
            self.typed.setdefault(term.kind, []).append(found)

    def candidates(self, message: FilteredMessage) -> Iterable[_Filter[S]]:
        """Return the filters whose term may hold, and filters that fail for the value's kind."""
        value = self.of.read(message)
        if value is None:
            return ()
        kind = kind_of(value)
        found = self.exact.get((kind, index_key(value)), [])
        others = [each for of, all_of in self.typed.items() if of is not kind for each in all_of]
        return [*found, *others] if others else found


class RuleSet(Generic[S]):
    """The rules of a topic's subscriptions, compiled."""

    def __init__(self, filters: Iterable[_Filter[S]]) -> None:
        self._always: list[_Target[S]] = []
        self._scanned: list[_Filter[S]] = []
        indexes: dict[Property, _Index[S]] = {}
        kept = list(filters)
        shared = Counter(term for each in kept for term in each.compiled.terms)
        for each in kept:
            if each.compiled.identity is True:
                self._always += each.targets
            elif each.compiled.terms:
                term = min(each.compiled.terms, key=lambda term: shared[term])
                indexes.setdefault(term.of, _Index(term.of)).add(term, each)
            elif each.compiled.identity is not False:
                self._scanned.append(each)
        self._indexes = list(indexes.values())

    @classmethod
    def of(
        cls, subscriptions: Mapping[S, Sequence[Rule]], *, new_id: Callable[[], UUID]
    ) -> RuleSet[S]:
        """Compile the rules of a topic's subscriptions."""
        filters: dict[Hashable, _Filter[S]] = {}
        order = 0
        for subscription, rules in subscriptions.items():
            for rule in rules:
                order += 1
                try:
                    compiled = compile_filter(rule.filter, new_id)
                    action = compile_action(rule.action, new_id, rule.action_parameters)
                except InvalidRule as error:
                    compiled, action = _failing(str(error)), None
                name = rule.name if action is not None else None
                target = _Target(order, Match(subscription, name), rule.name, action)
                filters.setdefault(compiled.identity, _Filter(compiled)).targets.append(target)
        return cls(filters.values())

    def select(self, message: FilteredMessage) -> Selection[S]:
        """Return the subscriptions that get a message."""
        hits = list(self._always)
        failed: list[tuple[_Target[S], str]] = []
        for each in self.candidates(message):
            try:
                if each.compiled.predicate(message):
                    hits += each.targets
            except FilterException as error:
                failed += [(target, str(error)) for target in each.targets]
        hits.sort(key=_order)
        return _selection(hits, failed, message)

    def candidates(self, message: FilteredMessage) -> Iterable[_Filter[S]]:
        """Return the filters to be evaluated for a message."""
        yield from self._scanned
        for index in self._indexes:
            yield from index.candidates(message)


def _order(target: _Target[S]) -> int:
    return target.order


def _failing(reason: str) -> CompiledFilter:
    def predicate(message: FilteredMessage) -> bool:
        raise FilterException(reason)

    return CompiledFilter(("failing", reason), predicate)


def _selection(
    hits: list[_Target[S]], failed: list[tuple[_Target[S], str]], message: FilteredMessage
) -> Selection[S]:
    matches: list[Match[S]] = []
    failures: dict[S, Failure[S]] = {}
    taken: set[S] = set()
    unchanged: set[S] = set()
    for hit in hits:
        subscription = hit.match.subscription
        taken.add(subscription)
        if hit.action is None:
            if subscription not in unchanged:
                unchanged.add(subscription)
                matches.append(hit.match)
            continue
        try:
            matches.append(Match(subscription, hit.rule_name, hit.action(message)))
        except FilterException as error:
            failures.setdefault(subscription, Failure(subscription, hit.rule_name, str(error)))
    for target, reason in sorted(failed, key=lambda each: each[0].order):
        subscription = target.match.subscription
        if subscription not in taken:
            failures.setdefault(subscription, Failure(subscription, target.rule_name, reason))
    return Selection(matches, list(failures.values()))
