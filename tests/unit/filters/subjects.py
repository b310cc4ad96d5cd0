"""Messages for the tests of filters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from bridge.model.entity import Filter, Rule, SqlFilter
from bridge.model.filters.rules import RuleSet, Selection
from bridge.wire.basic import Properties, table_of
from bridge.wire.envelope import Item
from bridge.wire.message_view import MessageView

GUID = UUID(int=1)
ENQUEUED_MS = 1_700_000_000_000


def message(properties: Properties | None = None, **user: Any) -> MessageView:
    """Return the view of a message with these user properties, plain or as fields."""
    properties = properties or Properties()
    properties.headers = {**(properties.headers or {}), **table_of(user)}
    properties.delivery_mode = 2
    item = Item(properties.encode(), b"body")
    return MessageView(item, number=7, enqueued_ms=ENQUEUED_MS, ttl_ms=60_000)


def rules(**subscriptions: Filter | str) -> RuleSet[str]:
    """Return one rule a subscription; a text is a SQL filter."""
    return RuleSet.of(
        {
            name: (
                Rule(
                    name="r", filter=SqlFilter(expression=each) if isinstance(each, str) else each
                ),
            )
            for name, each in subscriptions.items()
        },
        new_id=lambda: GUID,
    )


def takers(found: RuleSet[str], view: MessageView) -> list[str]:
    """Return the subscriptions that get a copy; no rule may fail."""
    selection = found.select(view)
    assert not selection.failures
    return [match.subscription for match in selection.matches]


def selected(expression: str, view: MessageView, **parameters: Any) -> Selection[str]:
    """Return what one SQL filter makes of a message."""
    given = tuple((f"@{name}", value) for name, value in parameters.items())
    return rules(only=SqlFilter(expression=expression, parameters=given)).select(view)
