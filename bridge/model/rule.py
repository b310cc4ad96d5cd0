"""Rules of subscriptions as values: a filter, and an action or none."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.model.name import DEFAULT_RULE_NAME, check_rule_name


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFilter:
    """A SQL filter; parameters map `@name` to a value."""

    expression: str
    parameters: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueFilter:
    """Takes every message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseFilter:
    """Takes no message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """Takes messages whose fields equal all given fields; `None` means 'any'."""

    content_type: str | None = None
    correlation_id: str | None = None
    label: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    to: str | None = None
    properties: tuple[tuple[str, object], ...] = ()


Filter = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named filter with an optional SQL action (empty: none) and the action's parameters.

    Names have no case; a rule keeps the spelling in which it was made.

    Attributes:
        created_at: when it was made, such as "2026-11-02T09:14:03Z"; "" when it was made with its
            subscription, or is of an earlier version of the bridge.
    """

    name: str
    filter: Filter
    action: str = ""
    action_parameters: tuple[tuple[str, object], ...] = ()
    created_at: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_rule_name(self.name)


DEFAULT_RULE = Rule(name=DEFAULT_RULE_NAME, filter=TrueFilter())
