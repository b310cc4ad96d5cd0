"""RabbitMQ alone: few policies, names as given, and queues that were there before."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from bridge.model import entity as model
from bridge.model.errors import EntityConflict
from bridge.topology import compiler
from bridge.topology.capabilities import PATTERN_BYTES_MAX, Capabilities
from bridge.topology.diff import Action, Change, diff, removal
from bridge.topology.mixed import refusal
from bridge.topology.parts import SCHEMA, bucket_queue
from bridge.topology.plain import compile_plain
from bridge.topology.policy import PROTECTED_PRIORITY, winners
from bridge.topology.resources import Exchange, Policy, Queue, Shovel, Topology

RABBITMQ = Capabilities.of("3.10")
DEAD_LETTERING = {
    "x-dead-letter-exchange": "orders/$dlx",
    "x-dead-letter-routing-key": "orders/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def of(*queues: model.Queue, topics: tuple[model.Topic, ...] = (), **options: object) -> Topology:
    """The plain flavour of these entities."""
    namespace = model.Namespace(queues=queues, topics=topics)
    return compile_plain(namespace, RABBITMQ, **options)  # type: ignore[arg-type]


def arguments(topology: Topology, name: str) -> dict[str, object]:
    """The arguments of a queue that RabbitMQ compares."""
    (found,) = [queue for queue in topology.queues if queue.name == name]
    return {key: value for key, value in found.arguments.items() if key.startswith("x-")}


def in_force(topology: Topology, name: str) -> dict[str, object]:
    """What the one policy on a queue says."""
    (queue,) = [queue for queue in topology.queues if queue.name == name]
    (policy,) = winners(queue, topology.policies)
    return dict(policy.definition)


def test_queues_of_equal_settings_share_a_policy() -> None:
    """300 queues of three kinds are three policies; dead-lettering is an argument of each queue."""
    queues = [
        model.Queue(name=f"orders-{number:03}", max_delivery_count=1 + number % 3)
        for number in range(300)
    ]

    topology = of(*queues)

    shared = [each for each in topology.policies if each.priority != PROTECTED_PRIORITY]
    assert len(shared) == 3
    assert all(len(each.pattern) <= PATTERN_BYTES_MAX for each in topology.policies)
    assert in_force(topology, "orders-004") == {"delivery-limit": 1, "max-length-bytes": 2**30}
    assert arguments(topology, "orders-004")["x-dead-letter-exchange"] == "orders-004/$dlx"


def test_an_idle_queue_has_its_time_in_the_shared_policy() -> None:
    """AutoDeleteOnIdle is a setting like the others."""
    idle = model.Queue(name="idle", auto_delete_on_idle_ms=300_000)

    assert in_force(of(idle), "idle")["expires"] == 300_000


def test_a_queue_that_was_there_without_our_arguments_keeps_a_policy_of_its_own() -> None:
    """RabbitMQ cannot give it arguments: it stays as it is, and a policy says all."""
    bare = Queue(name="orders", arguments={"x-queue-type": "quorum"})

    topology = of(
        model.Queue(name="orders"), model.Queue(name="new"), there=Topology(queues=(bare,))
    )

    assert arguments(topology, "orders") == {"x-queue-type": "quorum"}
    assert arguments(topology, "new") == {
        key: str(value).replace("orders", "new")
        for key, value in {"x-queue-type": "quorum", **DEAD_LETTERING}.items()
    }
    said = {key.removeprefix("x-"): value for key, value in DEAD_LETTERING.items()}
    own = {"delivery-limit": 9, "max-length-bytes": 2**30, **said}
    assert in_force(topology, "orders") == own
    assert {"busbridge.orders"} == {p.name for p in topology.policies if "overflow" in p.definition}


def test_a_queue_that_we_made_stays_in_the_shared_policy() -> None:
    """A second compilation, with the broker as the first one left it, is the same."""
    first = of(model.Queue(name="orders"))

    assert of(model.Queue(name="orders"), there=first) == first


def test_names_are_as_given_or_in_lower_case() -> None:
    """RabbitMQ's names have a case; `subscriptions` is ours."""
    topic = model.Topic(
        name="Events", subscriptions=(model.Subscription(topic="events", name="Audit"),)
    )
    queue = model.Queue(name="Orders", forward_dead_lettered_messages_to="EVENTS")

    given = of(queue, topics=(topic,))
    lower = of(queue, topics=(topic,), folds_names=True)

    names = {each.name for each in given.queues} | {each.name for each in given.exchanges}
    assert {"Orders", "Orders/$dlx", "Events", "Events/subscriptions/Audit"} <= names
    folded = {each.name for each in lower.queues} | {each.name for each in lower.exchanges}
    assert {name.lower() for name in names} == folded
    ends = {(each.source, each.destination) for each in given.bindings}
    assert {("Orders", "Orders"), ("Events", "Events/subscriptions/Audit")} <= ends
    assert ("Orders/$dlx", "Events") in ends
    assert in_force(given, "Events/subscriptions/Audit")["delivery-limit"] == 9


def test_two_names_that_differ_by_case_only_are_an_error() -> None:
    """Two subscriptions, or an entity and what the broker has of ours."""
    topic = model.Topic(
        name="t",
        subscriptions=tuple(
            model.Subscription(topic="t", name=name) for name in ("Audit", "audit")
        ),
    )
    with pytest.raises(EntityConflict, match="'t/subscriptions/Audit' and 't/subscriptions/audit'"):
        of(topics=(topic,))

    before = of(model.Queue(name="Orders"), folds_names=True)
    with pytest.raises(EntityConflict, match="--names lower"):
        of(model.Queue(name="Orders"), there=before)
    assert of(model.Queue(name="Orders"), there=before, folds_names=True) == before

    theirs = Topology(exchanges=(Exchange(name="orders", type="topic"),))
    assert of(model.Queue(name="Orders"), there=theirs) == of(model.Queue(name="Orders"))


@pytest.mark.parametrize("is_plain", [False, True])
def test_all_but_the_active_queues_are_safe_from_a_catch_all(is_plain: bool) -> None:
    """Their policies say what their arguments say, above any priority that a catch-all has."""
    namespace = model.Namespace(queues=(model.Queue(name="orders"), model.Queue(name="b.c")))
    topology = (compile_plain if is_plain else compiler.compile)(namespace, RABBITMQ)
    later = (bucket_queue("orders", 2, 17),) * (not is_plain)
    topology = replace(topology, queues=topology.queues + later)

    kept = [each for each in topology.policies if each.priority == PROTECTED_PRIORITY]
    assert all(len(each.pattern) <= PATTERN_BYTES_MAX for each in kept)
    taken = {
        queue.name
        for queue in topology.queues
        if any(re.search(each.pattern, queue.name) for each in kept)
    }
    assert {queue.name for queue in topology.queues} - taken == {"orders", "b.c"}
    assert not any(re.search(each.pattern, name) for each in kept for name in ("inbox", "a/b"))
    for queue in topology.queues:
        if queue.name in taken:
            policy = in_force(topology, queue.name)
            assert policy.items() <= {k[2:]: v for k, v in queue.arguments.items()}.items()


def test_a_virtual_host_of_the_other_flavour_is_refused_with_the_steps_to_take() -> None:
    """In both directions; what a user has there beside it is no reason."""
    namespace = model.Namespace(queues=tuple(model.Queue(name=name) for name in "abcde"))
    plain, bridged = compile_plain(namespace, RABBITMQ), compiler.compile(namespace, RABBITMQ)

    said = refusal(plain, "shop", wants_plain=False)
    assert "holds queues that work without the bridge (a, b, c and 2 more)" in said
    assert "   2. busbridge policies remove --allow --vhost shop\n" in said
    assert "   3. busbridge policies apply INPUT --vhost shop" in said
    assert "busbridge policies apply INPUT --flavour plain --vhost NEW\n" in refusal(
        bridged, "shop", wants_plain=True
    )
    for there, is_plain in ((plain, True), (bridged, False), (Topology(), True)):
        assert refusal(there, "shop", wants_plain=is_plain) == ""
    theirs = Topology(queues=(Queue(name="a", arguments={"x-queue-type": "quorum"}),))
    assert refusal(theirs, "shop", wants_plain=False) == ""
    assert SCHEMA.keys() <= plain.queues[-1].arguments.keys()


def test_a_queue_that_changes_leaves_the_policy_that_others_keep() -> None:
    """A queue that the input does not name keeps its settings; no two policies take one queue."""
    both = of(model.Queue(name="a"), model.Queue(name="b"))
    changed = model.Queue(name="a", max_delivery_count=3)

    wanted = of(changed, there=both, keeps_others=True)
    steps = [each for each in diff(wanted, both, keep=True) if isinstance(each.resource, Policy)]
    after = carried_out(both, steps)

    limits = {}
    for queue in both.queues:
        if "$" not in queue.name:
            (policy,) = winners(queue, after)
            limits[queue.name] = policy.definition["delivery-limit"]
    assert limits == {"a": 2, "b": 9}
    pruned = carried_out(both, diff(of(changed, there=both), both))
    assert [each.pattern for each in pruned if each.priority != PROTECTED_PRIORITY] == ["^a$"]


def carried_out(live: Topology, steps: Iterable[Change]) -> list[Policy]:
    """The policies of a broker after these steps."""
    found = {each.name: each for each in live.policies}
    for step in steps:
        if isinstance(step.resource, Policy):
            found.pop(step.resource.name, None)
            if step.action is not Action.DELETE:
                found[step.resource.name] = step.resource
    return [*found.values()]


def test_what_forwards_is_a_shovel_within_the_broker() -> None:
    """It needs no login, and what is lost by it is said."""
    topic = model.Topic(
        name="Events",
        subscriptions=(model.Subscription(topic="Events", name="all", forward_to="ORDERS"),),
    )
    topology = of(
        model.Queue(name="Orders"),
        model.Queue(name="old/2024", forward_to="events"),
        topics=(topic,),
        vhost="a/b c",
    )

    found = {each.value["src-queue"]: each.value for each in topology.shovels}
    assert {queue: value["dest-exchange"] for queue, value in found.items()} == {
        "old/2024": "Events",
        "Events/subscriptions/all": "Orders",
    }
    for value in found.values():
        assert value["src-uri"] == value["dest-uri"] == "amqp:///a%2Fb%20c"
        assert value["ack-mode"] == "on-confirm"
    said = [each.message for each in topology.findings if each.property == "ForwardTo"]
    assert len(said) == 2
    assert all("limit of hops and its transfer dead letters are lost" in each for each in said)
    assert all("plugin rabbitmq_shovel" in each for each in said)


def test_what_would_go_round_for_ever_is_not_forwarded() -> None:
    """Service Bus stops after four hops; RabbitMQ would not."""
    topic = model.Topic(
        name="t", subscriptions=(model.Subscription(topic="t", name="s", forward_to="b"),)
    )
    topology = of(
        model.Queue(name="a", forward_to="A"),
        model.Queue(name="b", forward_to="t"),
        model.Queue(name="c", forward_to="b"),
        model.Queue(name="d", forward_to="nowhere"),
        topics=(topic,),
    )

    assert [each.value["src-queue"] for each in topology.shovels] == ["c"]
    said = {each.entity: each.message for each in topology.findings}
    for path in ("a", "b", "t/Subscriptions/s"):
        assert "RabbitMQ has no limit of hops: messages stay" in said[path]
    assert said["d"] == "The namespace has no 'nowhere': messages stay in 'd'."


def test_a_shovel_goes_with_the_forwarding() -> None:
    """Of an entity that the input names; that of another one stays, but for a prune."""
    target = model.Queue(name="t")
    both = of(target, model.Queue(name="a", forward_to="t"), model.Queue(name="b", forward_to="t"))
    wanted = of(target, model.Queue(name="a"), there=both, keeps_others=True)

    def gone(*, keep: bool) -> list[str]:
        return [
            each.resource.name
            for each in diff(wanted, both, keep=keep)
            if isinstance(each.resource, Shovel) and each.action is Action.DELETE
        ]

    assert gone(keep=True) == ["busbridge.a"]
    assert gone(keep=False) == ["busbridge.a", "busbridge.b"]
    assert "busbridge.a" in [getattr(each.resource, "name", "") for each in removal(both)]
    assert diff(both, both) == ()
