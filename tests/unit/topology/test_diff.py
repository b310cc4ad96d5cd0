"""What has to change in a live broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from bridge.model import entity as model
from bridge.topology import compiler, definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.diff import Action, Change, diff, removal
from bridge.topology.parts import (
    bucket_queue,
    deferred_queue,
    history,
    sessions_queue,
    settled,
    transfer_dead_letter_queue,
    transfer_queue,
)
from bridge.topology.policy import PROTECTED_PRIORITY, winners
from bridge.topology.resources import Binding, Exchange, Parameter, Policy, Queue, Topology
from tests.unit.topology.entities import namespaces

RABBITMQ = Capabilities.of("4.3")


def compiled(namespace: model.Namespace) -> Topology:
    """The topology of a namespace with its definitions, as in vhost `/`."""
    topology = compiler.compile(namespace, RABBITMQ)
    return replace(topology, parameters=definitions.parameters(namespace, "/"))


def applied(changes: tuple[Change, ...], live: Topology) -> Topology:
    """A broker after these changes."""
    found = [*live.exchanges, *live.queues, *live.bindings, *live.policies, *live.parameters]
    for change in changes:
        if change.live is not None:
            found.remove(change.live)
        if change.action is not Action.DELETE:
            found.append(change.resource)
        if change.action is Action.DELETE and isinstance(change.resource, Queue):
            gone = change.resource.name
            found = [f for f in found if not (isinstance(f, Binding) and f.destination == gone)]
        if change.action is Action.DELETE and isinstance(change.resource, Exchange):
            gone = change.resource.name
            found = [f for f in found if not (isinstance(f, Binding) and f.source == gone)]
    return Topology(
        exchanges=tuple(each for each in found if isinstance(each, Exchange)),
        queues=tuple(each for each in found if isinstance(each, Queue)),
        bindings=tuple(each for each in found if isinstance(each, Binding)),
        policies=tuple(each for each in found if isinstance(each, Policy)),
        parameters=tuple(each for each in found if isinstance(each, Parameter)),
    )


ORDERS = compiled(model.Namespace(queues=(model.Queue(name="orders"),)))


@settings(max_examples=50)
@given(namespaces(), namespaces())
def test_the_changes_lead_to_what_is_wanted(one: model.Namespace, two: model.Namespace) -> None:
    """From any namespace to any other; then nothing is left to change; then all can be removed."""
    live = applied(diff(compiled(one), Topology()), Topology())
    assert diff(compiled(one), live) == ()
    changes = diff(compiled(two), live)
    if not any(change.action is Action.CONFLICT for change in changes):
        live = applied(changes, live)
        assert diff(compiled(two), live) == ()
    assert applied(removal(live), live) == Topology()


def test_nothing_of_the_users_is_touched() -> None:
    """Own queues, exchanges, policies, bindings to and from ours stay, whatever is wanted."""
    theirs = Topology(
        exchanges=(Exchange(name="app", type="topic"),),
        queues=(Queue(name="app", arguments={"x-queue-type": "classic"}),),
        bindings=(
            Binding(source="app", destination="orders", to_exchange=True),
            Binding(source="orders", destination="app"),
        ),
        policies=(Policy(name="app", pattern=".*", definition={"max-length": 1}),),
        parameters=(Parameter(name="cluster_name", value="x"),),
    )
    live = Topology(
        exchanges=ORDERS.exchanges + theirs.exchanges,
        queues=ORDERS.queues + theirs.queues,
        bindings=ORDERS.bindings + theirs.bindings,
        policies=ORDERS.policies + theirs.policies,
        parameters=ORDERS.parameters + theirs.parameters,
    )
    assert diff(ORDERS, live) == ()
    kept = applied(removal(live), live)
    assert kept.exchanges == theirs.exchanges
    assert kept.queues == theirs.queues
    assert kept.policies == theirs.policies
    assert kept.parameters == theirs.parameters


def test_a_queue_with_other_arguments_is_a_conflict() -> None:
    """RabbitMQ cannot change an argument: the plan says which, and plans no step for it."""
    live = Topology(queues=(Queue(name="orders", arguments={"x-queue-type": "classic"}),))
    first = diff(ORDERS, live)[0]
    assert first.action is Action.CONFLICT
    assert "x-queue-type is 'classic', not 'quorum'" in first.reason
    live = Topology(exchanges=(Exchange(name="orders", type="topic"),))
    assert diff(ORDERS, live)[0].reason == "it is of type topic, not fanout"


def test_where_expired_messages_go_changes_without_a_gap() -> None:
    """The new binding is there before the old one goes."""
    keeping = compiled(
        model.Namespace(
            queues=(model.Queue(name="orders", dead_lettering_on_message_expiration=True),)
        )
    )
    found = [c for c in diff(keeping, ORDERS) if isinstance(c.resource, Binding)]
    actions = [change.action for change in found]
    assert actions == sorted(actions, key=[Action.CREATE, Action.DELETE].index)
    assert actions.count(Action.CREATE) == actions.count(Action.DELETE) == 2
    assert not any(change.is_destructive for change in found)


def test_a_binding_that_is_replaced_goes_though_all_else_is_kept() -> None:
    """Or expired messages would go to both places: what was switched off would go on."""
    keeping = compiled(
        model.Namespace(
            queues=(model.Queue(name="orders", dead_lettering_on_message_expiration=True),)
        )
    )
    mine = Binding(source="orders/$dlx", destination="mine", arguments={"x-match": "all"})
    live = replace(keeping, bindings=(*keeping.bindings, mine), policies=ORDERS.policies)
    changes = [c for c in diff(ORDERS, live, keep=True) if isinstance(c.resource, Binding)]
    actions = [change.action for change in changes]
    assert actions == [Action.CREATE, Action.CREATE, Action.DELETE, Action.DELETE]
    old = {c.resource.destination for c in changes[2:] if isinstance(c.resource, Binding)}
    assert old == {"orders/$deadletterqueue", "orders/$moved"}


def test_deleting_a_queue_is_destructive_and_can_be_left_out() -> None:
    """Messages go with it, so that it needs the user's word."""
    changes = diff(compiled(model.Namespace()), ORDERS)
    queues = [change for change in changes if isinstance(change.resource, Queue)]
    assert {change.resource.name for change in queues if isinstance(change.resource, Queue)} == {
        "orders",
        "orders/$inbox",
        "orders/$journal",
        "orders/$moved",
        "orders/$deadletterqueue",
    }
    assert all(change.is_destructive for change in queues)
    assert diff(compiled(model.Namespace()), ORDERS, keep=True) == ()


def test_a_policy_whose_queues_all_have_another_one_goes_in_any_case() -> None:
    """It would tie with the new one: RabbitMQ applies either."""
    wanted = compiled(model.Namespace(queues=(model.Queue(name="orders", max_delivery_count=3),)))
    (old,) = [each for each in ORDERS.policies if each not in wanted.policies]

    changes = [c for c in diff(wanted, ORDERS, keep=True) if isinstance(c.resource, Policy)]

    assert [change.action for change in changes] == [Action.CREATE, Action.DELETE]
    assert changes[1].resource == old


@pytest.mark.parametrize(
    "queue",
    [
        bucket_queue("orders", 2, 7),
        deferred_queue("orders"),
        settled("orders"),
        settled("orders/$deadletterqueue"),
        history("orders"),
        sessions_queue("orders"),
        transfer_queue("orders"),
        transfer_dead_letter_queue("orders"),
        settled(transfer_dead_letter_queue("orders").name),
    ],
)
def test_what_is_made_when_needed_goes_with_its_entity_and_never_before(queue: Queue) -> None:
    """Resources that the bridge makes while it runs are no drift."""
    live = replace(ORDERS, queues=(*ORDERS.queues, queue))
    assert diff(ORDERS, live) == ()
    gone = [change.resource for change in diff(compiled(model.Namespace()), live)]
    assert queue in gone


@pytest.mark.parametrize("queue", [transfer_queue("orders"), transfer_dead_letter_queue("orders")])
def test_no_catch_all_of_a_user_gets_at_what_transactions_send(queue: Queue) -> None:
    """Nothing of it expires or is dropped, whatever a policy says of all queues."""
    catch_all = Policy(name="all", pattern=".*", definition={"message-ttl": 1}, priority=10)
    (winner,) = winners(queue, [*ORDERS.policies, catch_all])
    assert (winner.name != "all", winner.priority) == (True, PROTECTED_PRIORITY)


@pytest.mark.parametrize(
    "queue", [bucket_queue("events", 2, 7), history("events"), transfer_queue("events")]
)
def test_what_a_topic_has_made_when_needed_stays_with_it(queue: Queue) -> None:
    """Its scheduled messages, and the ids that it has accepted, are no drift."""
    wanted = compiled(model.Namespace(topics=(model.Topic(name="events"),)))
    live = replace(wanted, queues=(*wanted.queues, queue))
    assert diff(wanted, live) == ()
    gone = [change.resource for change in diff(compiled(model.Namespace()), live)]
    assert queue in gone


def test_a_shards_states_are_no_drift() -> None:
    """Each shard has a queue of its own, and a queue of states with that one's name."""
    shards = model.Queue(name="orders", requires_session=True, session_shards=2)
    wanted = compiled(model.Namespace(queues=(shards,)))
    states = tuple(sessions_queue("orders", shard) for shard in range(2))
    assert diff(wanted, replace(wanted, queues=(*wanted.queues, *states))) == ()
