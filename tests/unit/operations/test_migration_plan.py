"""The plan of a migration: refusals with figures, losses, changes, steps and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.operations.migration import plan
from bridge.operations.migration.comparison import made_mb
from bridge.operations.migration.copy_time import copy_time
from bridge.operations.migration.findings import FindingLevel
from bridge.operations.migration.plan import GENERAL, MigrationPlan, MigrationSide
from bridge.operations.migration.state_counts import StateCounter, StateCounts, told
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Int, Long, Timestamp

STANDARD, PREMIUM, BASIC = model.Tier.STANDARD, model.Tier.PREMIUM, model.Tier.BASIC
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
MEBIBYTE = 1_048_576


def side(
    *entities: model.Queue | model.Topic,
    tier: model.Tier = STANDARD,
    counted: Mapping[str, StateCounts] | None = None,
    refused: Mapping[str, str] | None = None,
) -> MigrationSide:
    """A namespace."""
    return MigrationSide(
        tier=tier,
        namespace=model.Namespace(
            queues=tuple(each for each in entities if isinstance(each, model.Queue)),
            topics=tuple(each for each in entities if isinstance(each, model.Topic)),
        ),
        counted=counted or {},
        refused=refused or {},
    )


def made(source: MigrationSide, target: MigrationSide, **given: object) -> MigrationPlan:
    """The plan of all entities of the source."""
    chosen = {*source.by_path(), *(path.lower() for path in source.refused)}
    return plan.make(source, target, chosen, now_ms=1_000_000, **given)  # type: ignore[arg-type]


def found(
    source: MigrationSide, target: MigrationSide, level: FindingLevel, **given: object
) -> list[tuple[str, str, str]]:
    """Entity, subject and text of the findings of a level, but for those of every migration."""
    every = made(source, target, **given).findings
    return [
        (each.entity, each.subject, each.text)
        for each in every
        if each.level == level and each not in GENERAL
    ]


ORDERS = model.Queue(name="Orders")


def test_a_namespace_that_the_target_takes_has_no_refusal() -> None:
    """What holds for all is said all the same."""
    there = made(side(ORDERS), side())
    assert there.findings == GENERAL
    assert [(each.path, each.kind, each.fate) for each in there.entities] == [
        ("Orders", "queue", "new")
    ]


def test_an_entity_that_is_there_as_it_should_is_left_as_it_is() -> None:
    """Names have no case; times of making and metadata of the service do not count."""
    there = model.Queue(name="orders", created_at="2026-11-02T09:14:03.120Z", incarnation="x")
    assert made(side(ORDERS), side(there)).entities[0].fate == "same"


@pytest.mark.parametrize(
    ("field", "value", "subject", "text"),
    [
        ("max_delivery_count", 3, "MaxDeliveryCount", "10 at the target becomes 3."),
        (
            "default_message_time_to_live_ms",
            60_000,
            "DefaultMessageTimeToLive",
            "for ever at the target becomes PT1M.",
        ),
        ("user_metadata", "shop", "UserMetadata", "nothing at the target becomes 'shop'."),
        (
            "status",
            model.EntityStatus.SEND_DISABLED,
            "Status",
            "Active at the target becomes SendDisabled.",
        ),
        (
            "dead_lettering_on_message_expiration",
            True,
            "DeadLetteringOnMessageExpiration",
            "false at the target becomes true.",
        ),
    ],
)
def test_a_property_that_differs_is_named_with_both_values(
    field: str, value: object, subject: str, text: str
) -> None:
    """It would be changed at the target."""
    wanted = replace(ORDERS, **{field: value})  # type: ignore[arg-type]
    assert found(side(wanted), side(ORDERS), "change") == [("Orders", subject, text)]
    assert made(side(wanted), side(ORDERS)).entities[0].fate == "changed"


@pytest.mark.parametrize(
    ("field", "subject"),
    [
        ("requires_session", "RequiresSession"),
        ("requires_duplicate_detection", "RequiresDuplicateDetection"),
        ("enable_partitioning", "EnablePartitioning"),
    ],
)
def test_what_is_fixed_at_the_making_of_an_entity_is_refused_where_it_differs(
    field: str, subject: str
) -> None:
    """Nobody can change it afterwards."""
    wanted = replace(ORDERS, **{field: True})  # type: ignore[arg-type]
    refusals = found(side(wanted), side(ORDERS), "refusal")
    assert ("Orders", subject) in [each[:2] for each in refusals]
    assert made(side(wanted), side(ORDERS)).entities[0].fate == "refused"
    assert not found(side(wanted), side(), "refusal")


def test_another_kind_of_entity_at_the_target_is_refused() -> None:
    """A queue where a topic is wanted."""
    ((path, subject, text),) = found(side(ORDERS), side(model.Topic(name="orders")), "refusal")
    assert (path, subject) == ("Orders", "kind")
    assert "it is a queue, and the target has a topic" in text


def test_access_rules_that_differ_are_named_and_no_key_is_shown() -> None:
    """Another key, another right, one that is missing, one that is more."""

    def rule(name: str, key: str, *rights: model.Right) -> model.AuthorizationRule:
        return model.AuthorizationRule(name=name, primary_key=key, rights=frozenset(rights))

    send, listen = model.Right.SEND, model.Right.LISTEN
    wanted = replace(
        ORDERS,
        authorization_rules=(rule("a", KEY, send), rule("b", KEY, send), rule("c", KEY, send)),
    )
    there = replace(
        ORDERS,
        authorization_rules=(rule("A", "x", send), rule("b", KEY, listen), rule("d", KEY, send)),
    )
    texts = [text for _, _, text in found(side(wanted), side(there), "change")]
    assert texts == [
        "'a' has another key at the target.",
        "'b' has other rights at the target.",
        "'c' comes to be.",
        "'d' is at the target alone, and stays.",
    ]
    assert KEY not in repr(made(side(wanted), side(there)))


def test_rules_that_differ_are_named() -> None:
    """One that is at the target alone would take messages."""

    def subscription(*rules: model.Rule) -> model.Topic:
        own = model.Subscription(topic="events", name="audit", rules=rules)
        return model.Topic(name="events", subscriptions=(own,))

    red = model.Rule(name="red", filter=model.SqlFilter(expression="color = 'red'"))
    blue = replace(red, filter=model.SqlFilter(expression="color = 'blue'"))
    texts = [
        text
        for _, subject, text in found(
            side(subscription(red)), side(subscription(blue, model.DEFAULT_RULE)), "change"
        )
    ]
    assert texts == [
        "'$Default' is at the target alone, and would take messages: it goes.",
        "'red' has another filter or action at the target.",
    ]


def test_what_the_targets_tier_does_not_take_is_a_loss_with_both_figures() -> None:
    """The size of an entity, of a message, and the time to live."""
    large = replace(ORDERS, max_size_mb=81_920, max_message_size_kb=102_400)
    assert found(side(large, tier=PREMIUM), side(tier=PREMIUM), "loss") == []
    assert found(side(large, tier=PREMIUM), side(), "loss") == [
        ("Orders", "MaxSizeInMegabytes", "81,920 becomes 5,120: the Standard tier takes 1,024, "
         "2,048, 3,072, 4,096, 5,120."),
        ("Orders", "MaxMessageSizeInKilobytes", "102,400 becomes 256, the largest of the Standard "
         "tier."),
    ]  # fmt: skip
    assert found(side(ORDERS), side(tier=BASIC), "loss") == [
        ("Orders", "DefaultMessageTimeToLive", "for ever becomes P14D, the longest of the Basic "
         "tier."),
    ]  # fmt: skip


def test_a_partitioned_entity_is_as_large_as_all_its_partitions() -> None:
    """As it is read back: sixteen times what it was made with."""
    read_back = replace(ORDERS, enable_partitioning=True, max_size_mb=16 * 5_120)
    holds = StateCounts(counts={"active": 1}, told_bytes=16 * 5_120 * MEBIBYTE)
    assert made(side(read_back, counted={"orders": holds}), side()).findings == GENERAL
    more = replace(holds, told_bytes=16 * 5_120 * MEBIBYTE + 1)
    ((_, subject, _),) = found(side(read_back, counted={"orders": more}), side(), "refusal")
    assert subject == "MaxSizeInMegabytes"


@pytest.mark.parametrize(
    ("counted", "subject", "figures"),
    [
        (
            StateCounts(counts={"deferred": 60_000, "deferred_dead_letter": 5}, is_peeked=True),
            "deferred messages",
            ("60,005", "60,000", "receive 5 of them"),
        ),
        (
            StateCounts(counts={"active": 1}, is_peeked=True, bytes={"active": 2_000 * MEBIBYTE}),
            "MaxSizeInMegabytes",
            ("2,097,152,000", "1,073,741,824"),
        ),
        (
            StateCounts(counts={"active": 1}, is_peeked=True, largest=(7, 300_000)),
            "MaxMessageSizeInKilobytes",
            ("message 7", "300,000", "262,144"),
        ),
        (
            StateCounts(
                counts={"active": 1},
                is_peeked=True,
                largest=(7, 262_100),
                largest_copy=(7, 262_200),
            ),
            "MaxMessageSizeInKilobytes",
            ("copy of message 7", "262,200", "262,144"),
        ),
        (
            StateCounts(counts={"active": 1}, is_peeked=True, unsayable=(1, 7, "repl-sequence")),
            "application properties",
            ("message 7 has", "'repl-sequence' that is no text", "receive it first"),
        ),
        (
            StateCounts(counts={"active": 9}, is_peeked=True, unsayable=(3, 7, "repl-sequence")),
            "application properties",
            ("3 messages, of which 7 is the first,", "receive them first"),
        ),
        (
            StateCounts(is_peeked=True, sessions=900_000, session_states=240_007),
            "sessions",
            ("240,007", "240,000", "clear 7 of them"),
        ),
        (StateCounts(transfer_dead_letter=3), "transfer dead letters", ("3",)),
        (
            StateCounts(counts={"active": 2}, is_peeked=True, unread=2),
            "messages",
            ("2 cannot be read",),
        ),
    ],
)
def test_what_is_beyond_a_bound_is_refused_with_its_figures(
    counted: StateCounts, subject: str, figures: tuple[str, ...]
) -> None:
    """And what to do about it."""
    ((path, about, text),) = found(side(ORDERS, counted={"orders": counted}), side(), "refusal")
    assert (path, about) == ("Orders", subject)
    for each in figures:
        assert each in text


def test_a_message_of_a_subscription_that_is_too_large_for_its_topic_is_refused() -> None:
    """As the target has the topic, or will have it."""
    audit = model.Subscription(topic="events", name="audit")
    events = model.Topic(name="events", subscriptions=(audit,))
    counted = {audit.path.lower(): StateCounts(is_peeked=True, largest=(7, 300_000))}
    ((path, subject, text),) = found(side(events, counted=counted), side(), "refusal")
    assert (path, subject) == (audit.path, "MaxMessageSizeInKilobytes")
    assert "message 7 has 300,000 bytes, and the target takes 262,144" in text
    large = replace(events, max_message_size_kb=1_024)
    there = side(large, tier=PREMIUM)
    assert not found(side(events, counted=counted), there, "refusal")


def test_what_is_at_a_bound_is_taken() -> None:
    """60,000 deferred messages, a message of the largest size; four shards of states."""
    full = StateCounts(
        counts={"deferred": 60_000},
        is_peeked=True,
        largest=(7, 262_144),
        sessions=900_000,
        session_states=240_000,
    )
    assert made(side(ORDERS, counted={"orders": full}), side()).findings == GENERAL


def test_deferred_messages_that_a_namespace_may_count_as_active_are_no_promise() -> None:
    """Without a peek they are not known, and it is said."""
    many = StateCounts(counts={"active": 60_001})
    ((_, subject, text),) = found(side(ORDERS, counted={"orders": many}), side(), "note")
    assert subject == "deferred messages"
    assert "--peek" in text
    peeked = replace(many, is_peeked=True)
    assert found(side(ORDERS, counted={"orders": peeked}), side(), "note") == []


def test_a_target_that_can_be_none_is_refused_whatever_it_has() -> None:
    """With the reason; otherwise nothing is said of it."""
    text = "it is no busbridge"
    assert found(side(ORDERS), side(), "refusal", unfit=text) == [("", "target", text)]
    assert found(side(ORDERS), side(), "refusal") == []


def test_messages_at_the_target_stand_against_it() -> None:
    """Numbers there are taken."""
    target = side(ORDERS, counted={"orders": StateCounts(counts={"dead_letter": 4})})
    ((_, subject, text),) = found(side(ORDERS), target, "refusal")
    assert subject == "messages"
    assert "the target's has 4 messages" in text
    assert "leave the entity out" in text
    assert "--renumber" in text


def test_beside_messages_of_the_target_others_get_new_numbers() -> None:
    """They stay, and count for the bounds."""
    own = StateCounts(counts={"deferred": 4, "active": 1}, told_bytes=1_073_741_824)
    target = side(ORDERS, counted={"orders": own})
    few = StateCounts(counts={"deferred": 60_000 - 4}, is_peeked=True)
    assert found(side(ORDERS, counted={"orders": few}), target, "refusal", renumbers=True) == []
    ((_, subject, text),) = found(side(ORDERS), target, "note", renumbers=True)
    assert (subject, "5 messages stay" in text) == ("messages", True)
    many = StateCounts(counts={"deferred": 60_000 - 3}, bytes={"deferred": 1}, is_peeked=True)
    refused = found(side(ORDERS, counted={"orders": many}), target, "refusal", renumbers=True)
    assert [each[1] for each in refused] == ["deferred messages", "MaxSizeInMegabytes"]
    assert "59,997 are deferred, 4 more at the target" in refused[0][2]
    assert "those of the target 1,073,741,824" in refused[1][2]


def test_a_target_of_forwarding_that_is_left_out_is_refused() -> None:
    """Unless the target has it; a subscription needs its topic."""
    forwards = model.Queue(name="a", forward_to="B")
    every = side(forwards, model.Queue(name="b"))
    chosen = plan.make(every, side(), {"a"}, now_ms=0)
    assert [each.subject for each in chosen.findings if each.level == "refusal"] == ["ForwardTo"]
    assert not found(every, side(), "refusal")
    there = plan.make(every, side(model.Queue(name="B")), {"a"}, now_ms=0)
    assert there.count("refusal") == 0
    topic = model.Topic(
        name="events", subscriptions=(model.Subscription(topic="events", name="audit"),)
    )
    alone = plan.make(side(topic), side(), {"events/subscriptions/audit"}, now_ms=0)
    assert [each.subject for each in alone.findings if each.level == "refusal"] == ["topic"]


def test_what_the_model_does_not_take_and_what_may_not_be_peeked_at_is_refused() -> None:
    """By name, with the reason."""
    source = side(ORDERS, refused={"Odd": "MaxDeliveryCount is 0"})
    assert found(source, side(), "refusal", denied={"Orders": "Listen is needed."}) == [
        ("Odd", "definition", "MaxDeliveryCount is 0"),
        ("Orders", "peek", "Listen is needed."),
    ]


def test_ids_of_received_messages_are_a_loss_of_duplicate_detection() -> None:
    """With the window that is open then."""
    once = replace(
        ORDERS,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window_ms=60_000,
    )
    ((_, subject, text),) = found(side(once), side(), "loss")
    assert subject == "RequiresDuplicateDetection"
    assert "PT1M" in text


def test_a_scheduled_message_that_is_due_before_the_end_is_named() -> None:
    """The time that the reads take decides."""
    counted = StateCounts(
        counts={"scheduled": 10_000}, is_peeked=True, first_due_ms=1_000_000 + 29_000
    )  # 30,000 reads: 30 s
    cancelled, (_, subject, text) = found(side(ORDERS, counted={"orders": counted}), side(), "note")
    assert cancelled[1:] == (
        "cancelled messages",
        "10,000 are cancelled at the source by the run: the target alone has them.",
    )
    assert subject == "scheduled messages"
    assert "1970-01-01T00:17:09.000Z" in text
    later = replace(counted, first_due_ms=1_000_000 + 31_000)
    assert found(side(ORDERS, counted={"orders": later}), side(), "note") == [cancelled]


def test_the_steps_are_in_order_with_what_forwards_first() -> None:
    """Stop, empty, define, copy, compare, start."""
    source = side(
        model.Queue(name="a"),
        model.Queue(name="z", forward_to="a", forward_dead_lettered_messages_to="a"),
        model.Queue(name="empty"),
        model.Topic(
            name="events",
            subscriptions=(
                model.Subscription(topic="events", name="one"),
                model.Subscription(topic="events", name="two"),
            ),
        ),
        counted={
            "a": StateCounts(counts={"active": 1_200, "deferred": 3}),
            "z": StateCounts(counts={"active": 5, "dead_letter": 2}, transfer=1),
            "events": StateCounts(counts={"scheduled": 1}),
            "events/subscriptions/one": StateCounts(counts={"active": 2, "dead_letter": 1}),
            "events/subscriptions/two": StateCounts(counts={"active": 2}),
        },
    )
    steps = made(source, side(model.Queue(name="a"))).steps
    assert [(each.what, each.entity) for each in steps] == [
        ("stop", ""),
        ("drain", "z"),
        ("define", ""),
        ("copy", "z"),
        ("copy", "a"),
        ("copy", "events"),
        ("compare", ""),
        ("start", ""),
    ]
    texts = {(each.what, each.entity): each.text for each in steps}
    assert texts["drain", "z"] == (
        "6 messages go to a; 2 dead letters go to a: wait until they have."
    )
    assert texts["define", ""] == "at the target: 5 to make, 0 to change, 1 as they are."
    assert texts["copy", "a"] == "1,203 messages (1,200 active, 3 deferred)."
    assert texts["copy", "events"] == (
        "6 messages (4 active, 1 scheduled, 1 dead-lettered), 2 subscriptions together."
    )


@pytest.mark.parametrize(
    ("tier", "rate", "credit_s", "measured_s", "least_s"),
    [
        (STANDARD, None, 151, None, 151),
        (BASIC, 4_000.0, 151, 38, 151),
        (STANDARD, 100.0, 151, 1_500, 1_500),
        (PREMIUM, 4_000.0, None, 38, 38),
        (PREMIUM, None, None, None, None),
    ],
)
def test_the_time_is_the_longer_of_credits_and_measured_rate(
    tier: model.Tier,
    rate: float | None,
    credit_s: int | None,
    measured_s: int | None,
    least_s: int | None,
) -> None:
    """50,000 messages, read three times, and 100 requests of 10 credits."""
    counted = [StateCounts(counts={"active": 49_000}), StateCounts(counts={"deferred": 1_000})]
    time = copy_time(counted, tier, requests=100, measured_per_s=rate)
    assert (time.messages, time.reads) == (50_000, 150_000)
    assert (time.credit_s, time.measured_s, time.least_s) == (credit_s, measured_s, least_s)


def test_the_count_of_deferred_messages_is_what_the_others_leave() -> None:
    """Service Bus has none of them; a count below 0 is none."""
    counts = Counts(active=5, dead_letter=2, scheduled=1, transfer=3, transfer_dead_letter=1)
    assert told(counts, 16, 900).counts == {
        "active": 5,
        "scheduled": 1,
        "deferred": 4,
        "dead_letter": 2,
    }
    assert told(counts, 0, None).deferred == 0
    assert (told(counts, 16, 900).size_bytes, told(counts, 16, None).size_bytes) == (900, None)


def message(number: int, state: int = 0, body: bytes = b"x", due_ms: int = 0) -> RemoteMessage:
    """A message as a peek shows it."""
    annotations: dict[str, object] = {"x-opt-sequence-number": Long(number)}
    if state:
        annotations["x-opt-message-state"] = Int(state)
    if due_ms:
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(due_ms)
    return RemoteMessage.of(data=body, annotations=annotations)


def test_peeked_messages_are_counted_by_state_with_their_bytes() -> None:
    """What the namespace has added, such as a number, is not in the bytes."""
    count = StateCounter()
    count.add(message(1, body=b"x" * 100), is_dead=False)
    count.add(message(2, 1), is_dead=False)
    count.add(message(3, 2, due_ms=9_000), is_dead=False)
    count.add(message(4, 2, due_ms=7_000), is_dead=False)
    count.add(message(1), is_dead=True)
    count.add(message(2, 1), is_dead=True)
    found = count.counted(StateCounts(transfer=3, told_bytes=5_000), 2, 1)
    assert found.counts == {
        "active": 1,
        "deferred": 1,
        "scheduled": 2,
        "dead_letter": 1,
        "deferred_dead_letter": 1,
    }
    small = len(message(2).body)
    assert found.bytes == {
        "active": small + 99,
        "deferred": small,
        "scheduled": 2 * small,
        "dead_letter": small,
        "deferred_dead_letter": small,
    }
    assert (found.largest, found.first_due_ms) == ((1, small + 99), 7_000)
    assert (found.total, found.deferred, found.transfer) == (6, 2, 3)
    assert (found.sessions, found.session_states) == (2, 1)
    assert (found.is_peeked, found.size_bytes) == (True, 6 * small + 99)


def test_a_message_whose_annotations_cannot_be_read_is_counted_as_such() -> None:
    """It is in no state that is known."""
    count = StateCounter()
    broken = replace(message(1), annotations=message(1).annotations[:-1])
    count.add(broken, is_dead=False)
    found = count.counted(StateCounts())
    assert (found.unread, found.total) == (1, 1)


@pytest.mark.parametrize(
    ("entity", "tier", "size_mb"),
    [
        (replace(ORDERS, max_size_mb=2_048), model.Tier.STANDARD, 2_048),
        (replace(ORDERS, enable_partitioning=True, max_size_mb=16_384), model.Tier.STANDARD, 1_024),
        (replace(ORDERS, enable_partitioning=True, max_size_mb=2_048), model.Tier.STANDARD, 2_048),
        (replace(ORDERS, max_size_mb=81_920), model.Tier.STANDARD, 5_120),
        (replace(ORDERS, max_size_mb=81_920), PREMIUM, 81_920),
    ],
)
def test_an_entity_is_made_with_the_size_of_a_partition_that_its_tier_takes(
    entity: model.Queue, tier: model.Tier, size_mb: int
) -> None:
    """Though its source reads back the size of all its partitions."""
    assert made_mb(entity, tier) == size_mb
