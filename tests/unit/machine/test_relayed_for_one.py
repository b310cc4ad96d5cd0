"""A relay's copy for one subscription alone reaches this one, once, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.machine.inbox.arrival import ExpiredUnnumbered, RefusedItem, SendCommand
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.targets import missing_target
from bridge.machine.inbox.wheel import place
from bridge.message.envelopes import RelayedCopy, item_of
from bridge.model.entity import Rule, SqlFilter, Subscription, Tier, Topic
from bridge.model.name import short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import copies, headers
from bridge.wire.basic import Properties, text, with_fields
from bridge.wire.envelope import Item
from bridge.wire.record import Record
from bridge.wire.relay_source import (
    digest_of,
    said_in_front,
    say,
    target_field,
    target_in_front,
)
from bridge.wire.stamp import unwait
from tests.unit.machine.test_relayed import ENVELOPES, a_sequencer, plain, read_envelope, send

NEVER = (Rule(name="never", filter=SqlFilter(expression="1 = 0")),)
AUDIT = Subscription(name="audit", topic="events", rules=NEVER)
LEDGER = Subscription(name="ledger", topic="events")
EVENTS = Topic(name="events", subscriptions=(AUDIT, LEDGER))
SHORTS = {each.name: short_id(incarnation_of(each)) for each in (AUDIT, LEDGER)}
SOURCE = digest_of("here/events/subscriptions/audit/$deadletterqueue")


def for_one(number: int, target: bytes = SHORTS["audit"]) -> Item:
    """Return a copy for one subscription as a bridge's door writes it into an envelope."""
    record = Record(Properties(headers={"a": text("b")}, delivery_mode=2), b"body")
    said = say(SOURCE, number, number, 0)
    return item_of(EVENTS, RelayedCopy(record=record, size_bytes=4, said=said, target=target))


def reached(publications: list[Publication]) -> set[str]:
    """Return the subscriptions that publications are for."""
    found = set()
    for each in publications:
        table = Properties.decode(each.properties).headers or {}
        assert headers.TARGET not in table
        listed, total = copies.decode(bytes(table[headers.COPIES][1]))  # type: ignore[arg-type]
        assert len(listed) == total
        found |= {name for name, short in SHORTS.items() if short in dict(listed)}
    return found


def test_it_reaches_this_one_alone_whatever_rules_say() -> None:
    """Beside messages for all, in one batch; and a repeat of it nobody."""
    sequencer = a_sequencer(entity=EVENTS)
    assert reached(send(sequencer, for_one(1))) == {"audit"}
    first, second, third = send(sequencer, plain(), for_one(2), plain())
    assert [reached([each]) for each in (first, second, third)] == [
        {"ledger"},
        {"audit"},
        {"ledger"},
    ]
    assert send(sequencer, for_one(1), for_one(2)) == []


def test_a_subscription_that_is_gone_gets_nothing_and_neither_does_another() -> None:
    """One of the same name that was made since is another one."""
    sequencer = a_sequencer(entity=EVENTS)
    assert reached(send(sequencer, for_one(1, bytes(6)))) == set()


def test_what_a_relay_says_stays_in_front_and_the_subscription_goes() -> None:
    """So the journal's entry is that of any copy."""
    item = for_one(1)
    said, rest = said_in_front(item.properties) or (b"", b"")
    aimed = target_in_front(rest)
    assert aimed is not None
    assert aimed[0] == SHORTS["audit"]
    (made_ready,) = read_envelope(ENVELOPES.of(item)).items
    assert made_ready.target == SHORTS["audit"]
    assert made_ready.source == said
    assert said_in_front(made_ready.properties) == (said, aimed[1])


@pytest.mark.parametrize("is_cut", [False, True])
def test_without_a_relays_word_no_subscription_is_heeded(*, is_cut: bool) -> None:
    """Nor one that is no short id: the message is for all, as any."""
    bare = plain().properties
    field = target_field(bytes(5) if is_cut else SHORTS["audit"])
    properties = with_fields(bare, field)
    (item,) = read_envelope(ENVELOPES.of(replace(plain(), properties=properties))).items
    assert item.target is None
    assert item.properties == bare


def test_a_subscription_that_is_not_known_yet_is_looked_for_before_its_message_is_numbered() -> (
    None
):
    """Its bridge has made it this instant, perhaps; what was deleted is given up."""
    sequencer, unknown = a_sequencer(entity=replace(EVENTS, subscriptions=(LEDGER,))), b"absent"
    fanout = sequencer.fanout
    assert fanout is not None
    known = read_envelope(ENVELOPES.of(plain(), for_one(1, SHORTS["ledger"])))
    assert missing_target(fanout, known) is None
    command = read_envelope(ENVELOPES.of(plain(), for_one(2)))
    assert missing_target(fanout, command) == SHORTS["audit"]
    refused = RefusedItem(replace(plain(), target=unknown), "why", "because")
    assert missing_target(fanout, refused) == unknown
    assert missing_target(fanout, ExpiredUnnumbered(refused.item)) == unknown
    assert missing_target(fanout, replace(refused, item=plain())) is None
    forged = replace(refused, item=replace(plain(), target=b"no short id"))
    assert missing_target(fanout, forged) is None

    sequencer.update(EVENTS, Tier.STANDARD)
    assert missing_target(fanout, command) is None
    fanout.give_up(unknown)
    assert missing_target(fanout, refused) is None
    assert missing_target(a_sequencer().fanout, command) is None, "a queue has no subscriptions"


@pytest.mark.parametrize("has_bucket", [False, True])
def test_a_message_that_waits_for_its_time_keeps_its_only_subscription(*, has_bucket: bool) -> None:
    """A native publisher's, sent back from a subscription; RabbitMQ sorts headers in a bucket."""
    sequencer = a_sequencer(entity=EVENTS)
    item = replace(plain(), target=SHORTS["audit"], scheduled_ms=5_000)
    command = SendCommand(bytes(16), [item])
    where = place(item.scheduled_ms or 0, 0)
    if has_bucket:
        sequencer.memory.wheel.add(where)
    applied = sequencer.apply(command, 0)
    if not has_bucket:
        (unplaced,) = applied.unplaced
        waiting = unplaced.waiting
    else:
        (stored,) = applied.publications
        basic = Properties.decode(stored.properties)
        basic.headers = dict(sorted((basic.headers or {}).items()))
        waiting = unwait(basic.encode())
    made = list(sequencer.activate(waiting, item.body, 5_000))
    assert reached(made) == {"audit"}
