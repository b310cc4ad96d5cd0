"""Rules of subscriptions, their filters and actions, under the SDK's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from bridge.client.mapping import Mapped

Value = str | int | float | bool | datetime | timedelta
Values = Mapping[str, Value] | None


@dataclass(kw_only=True)
class CorrelationRuleFilter:
    """A filter of messages whose fields and properties equal all given ones."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Values = None


@dataclass
class SqlRuleFilter:
    """A filter by a SQL expression, which names parameters as `@name`."""

    sql_expression: str | None = None
    parameters: Values = None
    requires_preprocessing = True


class TrueRuleFilter(SqlRuleFilter):
    """A filter that takes every message."""

    def __init__(self) -> None:
        super().__init__("1=1", None)


class FalseRuleFilter(SqlRuleFilter):
    """A filter that takes no message."""

    def __init__(self) -> None:
        super().__init__("1>1", None)


@dataclass
class SqlRuleAction:
    """A change of a rule's messages."""

    sql_expression: str | None = None
    parameters: Values = None
    requires_preprocessing = True


Filter = CorrelationRuleFilter | SqlRuleFilter


@dataclass
class RuleProperties(Mapped):
    """A rule; a rule without a filter takes every message."""

    name: str
    _: KW_ONLY
    filter: Filter | None
    action: SqlRuleAction | None
    created_at_utc: datetime | None
