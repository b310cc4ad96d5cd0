"""Messages of a session entity with shards: each session's go to one queue, and to the journal."""

from __future__ import annotations

from uuid import UUID

from bridge.machine.browse.entity_messages import MovedTo
from bridge.machine.browse.places import Places
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.left_out import Missed, first_copies, for_one, without
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, SendEntity, Subscription, Tier, Topic
from bridge.model.name import short_id
from bridge.topology import names
from bridge.topology.shards import shard_of
from bridge.wire import headers, stamp
from bridge.wire.basic import Properties, Table, long, text
from bridge.wire.envelope import Item

SESSIONS = [f"session {number}" for number in range(40)]
QUEUE = Queue(name="q", requires_session=True, session_shards=4, folds_session_ids=True)
SHARDED, PLAIN = short_id("sharded"), short_id("plain")
TOPIC = Topic(
    name="t",
    subscriptions=(
        Subscription(topic="t", name="plain", incarnation="plain"),
        Subscription(
            topic="t", name="s", incarnation="sharded", requires_session=True, session_shards=4
        ),
    ),
)
SUBSCRIPTION = TOPIC.subscriptions[1]
ACTIVE = names.active_exchange("t")


def of(session_id: str | None) -> bytes:
    """The properties of a session's message."""
    table: Table = {} if session_id is None else {headers.SESSION_ID: text(session_id)}
    return Properties(headers=table, delivery_mode=2).encode()


def sequencer(entity: SendEntity) -> Sequencer:
    """The sequencer of an entity."""
    return Sequencer(entity, Tier.STANDARD, blank(is_partitioned=False), lambda: UUID(int=0))


def sent(entity: SendEntity, session_id: str | None) -> Publication:
    """What is published for a message of a session."""
    command = SendCommand(bytes(16), (Item(of(session_id), b"body"),))
    (publication,) = sequencer(entity).apply(command, 1_000).publications
    return publication


def keys(publication: Publication) -> set[str]:
    """The keys that a publication reaches beside its own."""
    listed = (Properties.decode(publication.properties).headers or {}).get("BCC", ("A", []))[1]
    assert isinstance(listed, list)
    return {key.decode() for _, key in listed if isinstance(key, bytes)}


def test_a_queues_message_goes_to_its_sessions_shard() -> None:
    """By one publish, under the key of the shard; without a session id to the first."""
    for session_id in SESSIONS:
        publication = sent(QUEUE, session_id)
        assert publication.exchange == names.active_exchange("q")
        assert publication.routing_key == str(shard_of(QUEUE, session_id))
    assert {sent(QUEUE, each).routing_key for each in SESSIONS} == {"0", "1", "2", "3"}
    assert sent(QUEUE, None).routing_key == "0"
    assert sent(Queue(name="q", requires_session=True), "session 1").routing_key == ""


def test_a_scheduled_message_goes_to_its_sessions_shard_when_it_is_due() -> None:
    """It has the properties that it was sent with."""
    leader = sequencer(QUEUE)
    session_id = next(each for each in SESSIONS if shard_of(QUEUE, each) == 3)
    item = Item(of(session_id), b"body", scheduled_ms=61_000)
    command = SendCommand(bytes(16), (item,))
    (waiting,) = leader.apply(command, 1_000).publications
    found = stamp.unwait(waiting.properties)
    assert found is not None
    (publication,) = leader.activate(found, b"body", 61_000)
    assert publication.routing_key == "3"


def test_a_topics_message_goes_to_one_shard_of_a_subscription() -> None:
    """And to the queues of others as ever."""
    for session_id in SESSIONS:
        expected = {
            names.copy_key(PLAIN),
            names.copy_key(SHARDED, shard_of(SUBSCRIPTION, session_id)),
        }
        assert keys(sent(TOPIC, session_id)) == expected


def test_a_subscription_is_left_out_whichever_shard_takes_nothing() -> None:
    """Its key of the message is asked, and is not reached any more."""
    session_id = next(each for each in SESSIONS if shard_of(SUBSCRIPTION, each) == 2)
    publication = sent(TOPIC, session_id)
    found = first_copies([publication], ACTIVE)
    assert found.keys() == {PLAIN, SHARDED}
    alone = for_one(publication, SHARDED)
    assert (alone.routing_key, keys(alone)) == (names.copy_key(SHARDED, 2), set())
    assert keys(without(publication, {SHARDED}, ACTIVE)) == {names.copy_key(PLAIN)}
    leader = sequencer(TOPIC)
    leader.memory.left_out[SHARDED] = Missed(1, 0)
    command = SendCommand(bytes(16), (Item(of(session_id), b"body"),))
    (spared,) = leader.apply(command, 1_000).publications
    assert keys(spared) == {names.copy_key(PLAIN)}


def test_a_peek_knows_what_died_or_was_put_back_in_any_shard() -> None:
    """All shards are the entity's active messages."""
    places = Places("q", None, shard_count=4)
    shard = names.active_queue("q", 3)
    died: Table = {headers.SEQUENCE_NUMBER: long(1), "x-first-death-queue": text(shard)}
    places.take(1, died)
    places.take(2, {headers.SEQUENCE_NUMBER: long(2), headers.MOVED: text(shard)})
    assert (places.place(1), places.place(2)) == (MovedTo.DEAD, MovedTo.ACTIVE)
    assert places.take(3, {**died, "x-first-death-queue": text("q/$shard/4")}) is None
