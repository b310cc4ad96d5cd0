"""The order in which policies change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.topology.policy import matches
from bridge.topology.resources import Policy
from bridge.topology.rollout import Step, rollout
from bridge.topology.sharing import Sharing, share

QUEUES = [f"q{number}" for number in range(12)]
SETTINGS = st.dictionaries(
    st.sampled_from(QUEUES), st.sampled_from([{"x": 1}, {"x": 2}, {"x": 3}]), max_size=12
)


@given(SETTINGS, SETTINGS, st.sampled_from([16, 20, 1_024]))
def test_no_queue_is_without_a_policy_on_the_way(
    before: dict[str, dict[str, int]], after: dict[str, dict[str, int]], bytes_max: int
) -> None:
    """After every step each queue that keeps having a policy has its old or its new settings."""
    old = share(before, Sharing(bytes_max=bytes_max))
    new = share(after, Sharing(bytes_max=bytes_max))
    live = {policy.name: policy for policy in old}
    for step in rollout(new, old, QUEUES):
        if step.new is None:
            assert step.old is not None
            assert live.pop(step.old.name) == step.old
        else:
            assert live.get(step.new.name) == step.old
            live[step.new.name] = step.new
        for queue in before.keys() & after.keys():
            found = [policy.definition for policy in live.values() if matches(policy, queue)]
            assert found
            assert all(each in (before[queue], after[queue]) for each in found)
    assert sorted(live.values(), key=lambda policy: policy.name) == list(new)
    assert rollout(new, new, QUEUES) == ()


def test_two_queues_that_change_places_are_kept_by_an_interim_policy() -> None:
    """Where neither policy can be the first to let go, a copy holds on meanwhile."""
    old = share({"a": {"x": 1}, "b": {"x": 2}})
    new = share({"a": {"x": 2}, "b": {"x": 1}})
    steps = rollout(new, old, ["a", "b"])
    interim = Policy(name="busbridge.x-1.interim", pattern="^a$", definition={"x": 1}, priority=50)
    assert steps == (
        Step(old=None, new=interim),
        Step(old=old[0], new=new[0]),
        Step(old=old[1], new=new[1]),
        Step(old=interim, new=None),
    )
