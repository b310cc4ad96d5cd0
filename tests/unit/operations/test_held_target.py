"""A plan says who holds an entity of the target, how to go on, and how to give up."""

from __future__ import annotations

import pytest

from bridge.model import entity as model
from bridge.operations.migration.held_target import TargetHold, target_findings
from bridge.operations.migration.plan import MigrationSide, make
from bridge.operations.migration.state_counts import StateCounts

ORDERS = model.Queue(name="orders")
AUDIT = model.Subscription(topic="events", name="audit")
RUN = TargetHold(by="run", command="busbridge migrate run --from a --to b", target="b")
VERIFIED = TargetHold(by="run", command=RUN.command, is_verified=True, target="b")
RENUMBER = TargetHold(by="renumber", command=f"{RUN.command} --renumber")
BACK = TargetHold(by="back", command="busbridge migrate back --from a --to b")
OTHER = TargetHold(by="other", command="orders: held by the migration 'x'.")
GO_ON = "`busbridge migrate run --from a --to b` holds the target's: it is at work, or was killed."
GIVE_UP = "(`busbridge delete queue orders -n b`): the source has everything. Do not purge it."


@pytest.mark.parametrize(
    ("hold", "renumbers", "level", "begins", "ends"),
    [
        (RUN, False, "note", GO_ON, GIVE_UP),
        (RUN, True, "refusal", GO_ON, GIVE_UP),
        (VERIFIED, False, "note", GO_ON, "do not give up, or what was scheduled may be lost."),
        (RENUMBER, True, "note", "`busbridge migrate run", "To give up, give it with --give-up."),
        (RENUMBER, False, "refusal", "`busbridge migrate run", "give it with --give-up."),
        (BACK, False, "refusal", "`busbridge migrate back", "was killed. Give it again."),
        (OTHER, False, "refusal", "another migration holds the target's: ", "'x'."),
    ],
)
def test_a_hold_is_named_with_what_goes_on_and_what_gives_up(
    hold: TargetHold, renumbers: bool, level: str, begins: str, ends: str
) -> None:
    """In place of the advice to purge what a run has copied."""
    own = StateCounts(counts={"active": 5})
    (found,) = target_findings(ORDERS, own, hold, renumbers=renumbers)
    assert (found.level, found.subject) == (level, "hold")
    assert found.text.startswith(begins)
    assert found.text.endswith(ends)


def test_a_subscription_is_given_up_by_both_of_its_names() -> None:
    """As the command takes them."""
    (found,) = target_findings(AUDIT, StateCounts(), RUN, renumbers=False)
    assert "`busbridge delete subscription events audit -n b`" in found.text


def test_a_plan_while_a_killed_run_holds_refuses_nothing() -> None:
    """The same run goes on there."""
    side = MigrationSide(
        tier=model.Tier.STANDARD,
        namespace=model.Namespace(name="n", queues=(ORDERS,)),
        counted={"orders": StateCounts(counts={"active": 5})},
    )
    made = make(side, side, {"orders"}, now_ms=0, holds={"orders": RUN})
    assert not made.count("refusal")
    assert [each.subject for each in made.findings if each.entity == "orders"] == ["hold"]
