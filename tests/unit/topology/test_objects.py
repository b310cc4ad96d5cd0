"""How many objects of RabbitMQ an entity of each kind has before it is used."""

from __future__ import annotations

import pytest

from bridge.model import entity as model
from bridge.topology import bridged, compiler
from bridge.topology.capabilities import Capabilities
from bridge.topology.resources import Topology

RABBITMQ = Capabilities.of("4.3.6")
TOPIC = model.Topic(name="events")
SUBSCRIPTION = model.Subscription(topic="events", name="all")


def compiled(*entities: model.Queue | model.Topic) -> Topology:
    """Compile a namespace of some entities."""
    queues = tuple(each for each in entities if isinstance(each, model.Queue))
    topics = tuple(each for each in entities if isinstance(each, model.Topic))
    return compiler.compile(model.Namespace(queues=queues, topics=topics), RABBITMQ)


def counted(topology: Topology, without: Topology) -> tuple[int, int, int]:
    """The queues, exchanges and bindings that one topology has beyond another one."""
    return (
        len(topology.queues) - len(without.queues),
        len(topology.exchanges) - len(without.exchanges),
        len(topology.bindings) - len(without.bindings),
    )


@pytest.mark.parametrize(
    ("entity", "objects"),
    [
        (model.Queue(name="orders"), (5, 3, 10)),
        (model.Queue(name="orders", dead_lettering_on_message_expiration=True), (5, 3, 10)),
        (model.Queue(name="orders", requires_duplicate_detection=True), (5, 3, 10)),
        (model.Queue(name="orders", forward_to="bills"), (5, 3, 10)),
        (model.Queue(name="orders", requires_session=True, session_shards=1), (5, 3, 10)),
        (model.Queue(name="orders", requires_session=True, session_shards=4), (8, 3, 16)),
        (TOPIC, (3, 2, 2)),
        (model.Topic(name="events", requires_duplicate_detection=True), (3, 2, 2)),
    ],
    ids=lambda each: each.path if isinstance(each, model.Queue | model.Topic) else str(each),
)
def test_an_entity_has_so_many_queues_exchanges_and_bindings(
    entity: model.Queue | model.Topic, objects: tuple[int, int, int]
) -> None:
    """Others are made when they are used."""
    assert counted(compiled(entity), compiled()) == objects


@pytest.mark.parametrize(
    ("subscription", "objects"),
    [
        (SUBSCRIPTION, (2, 1, 8)),
        (
            model.Subscription(topic="events", name="all", requires_session=True, session_shards=4),
            (5, 1, 11),
        ),
    ],
    ids=["plain", "with sessions"],
)
def test_a_subscription_has_so_many_queues_exchanges_and_bindings(
    subscription: model.Subscription, objects: tuple[int, int, int]
) -> None:
    """They come on top of its topic's."""
    topic = model.Topic(name="events", subscriptions=(subscription,))
    assert counted(compiled(topic), compiled(TOPIC)) == objects


def test_what_all_entities_share_is_four_objects() -> None:
    """Two exchanges, and two queues."""
    assert counted(bridged.shared(), Topology()) == (2, 2, 0)
