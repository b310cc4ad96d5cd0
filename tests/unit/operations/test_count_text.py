"""Numbers of things are said as people say them."""

from __future__ import annotations

import pytest

from bridge.model import entity as model
from bridge.operations.count_text import be, counted, have
from bridge.operations.migration.plan import MigrationSide, make
from bridge.operations.migration.source_watch import risen
from bridge.operations.migration.state_counts import StateCounts


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 messages are"), (1, "1 message is"), (2_000, "2,000 messages are")]
)
def test_one_is_no_several(count: int, text: str) -> None:
    """The verb goes with the noun."""
    assert f"{counted(count, 'message')} {be(count)}" == text


def test_other_plurals_and_verbs() -> None:
    """As the caller has them."""
    assert counted(1, "loss", "losses") == "1 loss"
    assert counted(3, "loss", "losses") == "3 losses"
    assert (have(1), have(2)) == ("has", "have")


def test_a_plan_says_of_one_scheduled_message_that_it_is_cancelled() -> None:
    """And of one that is copied, that it is one."""
    side = MigrationSide(
        tier=model.Tier.STANDARD,
        namespace=model.Namespace(name="n", queues=(model.Queue(name="q"),)),
        counted={"q": StateCounts(counts={"scheduled": 1})},
    )
    made = make(side, MigrationSide(tier=side.tier, namespace=model.Namespace(name="m")), {"q"},
                now_ms=0)  # fmt: skip
    texts = [each.text for each in made.findings] + [each.text for each in made.steps]
    assert "1 is cancelled at the source by the run: the target alone has it." in texts
    assert "1 message (1 scheduled)." in texts
    assert "read the 1 message once more: none may have come, gone or changed." in texts
    after = MigrationSide(tier=side.tier, namespace=side.namespace)
    assert risen(after, side, {"q"}) == ["q had 0 messages, and has 1."]
