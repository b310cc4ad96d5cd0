"""Filters: evaluations a second of 2,000 SQL filters, and what the index of equality terms saves.

The peer of the first figure is the same conditions written by hand as Python functions over a plain
dict; of the second, the same filters found without an index. No broker.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from uuid import UUID

from bridge.model.entity import Rule, SqlFilter
from bridge.model.filters.rules import RuleSet
from bridge.wire.basic import Properties, table_of
from bridge.wire.envelope import Item
from bridge.wire.message_view import MessageView
from tests.bench.figure import compare, report

FILTERS = 2_000
ROUNDS = 7
MESSAGES = 20

Condition = Callable[[dict[str, object]], bool]


def rule_set(expression: str) -> RuleSet[int]:
    """One subscription for each filter; `{n}` in the expression is its number."""
    rules = {
        n: (Rule(name="r", filter=SqlFilter(expression=expression.format(n=n))),)
        for n in range(FILTERS)
    }
    return RuleSet.of(rules, new_id=lambda: UUID(int=0))


def view() -> MessageView:
    """A message that few of the filters take, read from its encoded properties."""
    user = {"store": "s7", "quantity": 3, "region": "eu", "note": "left at the door"}
    properties = Properties(headers=table_of(user), type="Order", delivery_mode=2)
    return MessageView(Item(properties.encode(), b""), number=1, enqueued_ms=0, ttl_ms=None)


def by_hand() -> list[Condition]:
    """The first figure's conditions in Python."""

    def condition(n: int) -> Condition:
        def test(user: dict[str, object]) -> bool:
            quantity, region = user.get("quantity"), user.get("region")
            if not (isinstance(quantity, int) and quantity > n):
                return False
            return isinstance(region, str) and region < "f"

        return test

    return [condition(n) for n in range(FILTERS)]


def per_second(work: Callable[[], object], times: int) -> list[float]:
    """Samples of how often `times` things are done a second."""
    samples = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(MESSAGES):
            work()
        samples.append(MESSAGES * times / (time.process_time() - begin))
    return samples


def main() -> int:
    """Measure, print, and return 1 when a figure is below its floor."""
    scanned = rule_set("quantity > {n} AND region < 'f'")
    conditions = by_hand()
    user: dict[str, object] = {"quantity": 3, "region": "eu"}
    found = rule_set("store = 's{n}' AND quantity > 2")
    hidden = rule_set("NOT store <> 's{n}' AND quantity > 2")
    figures = [
        compare(
            f"{FILTERS} SQL filters: evaluations a second",
            "1/s",
            per_second(lambda: scanned.select(view()), FILTERS),
            per_second(lambda: [each(user) for each in conditions], FILTERS),
            peer="by hand",
            floor=0.1,
        ),
        compare(
            f"{FILTERS} SQL filters with an equality term: messages a second",
            "1/s",
            per_second(lambda: found.select(view()), 1),
            per_second(lambda: hidden.select(view()), 1),
            peer="no index",
            floor=10,
        ),
    ]
    return 0 if report("filters", figures) else 1


if __name__ == "__main__":
    sys.exit(main())
