"""Messages are selected by the filters' own SQL, and by values of a body of JSON."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.operations.condition import Condition
from bridge.remote.body_path import BodyPath
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10 import scalars
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.fixtures.examples import examples
from tests.unit.operations.test_changes import NO_SUBJECT

ORDER = RemoteMessage.of(
    data=b'{"a": {"b": 5, "c d": "x"}, "items": [{"n": 1.5}, null], "big": 123456789012345678901}',
    properties=MessageProperties(message_id="m1", subject="order", group_id="s1"),
    application_properties={"Color": "red", "count": scalars.Uint(3), "at": scalars.Timestamp(0)},
    annotations={
        "x-opt-sequence-number": 7,
        "x-opt-enqueued-time": scalars.Timestamp(1_700_000_000_000),
        "x-opt-message-state": scalars.Int(2),
        "x-opt-scheduled-enqueue-time": 1_700_000_060_000,
        "x-opt-partition-key": "s1",
    },
    ttl_ms=60_000,
)


@pytest.mark.parametrize(
    "condition",
    [
        "color = 'red' AND count > 2 AND at < sys.EnqueuedTimeUtc",
        "sys.SequenceNumber = 7 AND sys.State = 2 AND sys.DeliveryCount = 0",
        "sys.MessageId = 'm1' AND sys.Label LIKE 'or%' AND sys.SessionId = sys.PartitionKey",
        "sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive",
        "sys.ScheduledEnqueueTimeUtc - sys.EnqueuedTimeUtc = sys.TimeToLive",
        "sys.Size > 100 AND sys.LockedUntilUtc IS NULL",
        "body('$.a.b') = 5",
        "Body ( '$.a.b' ) > 4 AND body('$.a[''c d'']') = 'x'",
        "body('$.items[0].n') * 2 = 3",
        "body('$.a[\"c d\"]') IN ('x', 'y')",
        "EXISTS(color) AND body('$.items[1]') IS NULL",
        "body('$.none.at.all') IS NULL",
        "NOT (body('$.a.b') = 6)",
        "body('$.big') > 1E20",
        "body = NULL OR color = 'red'",
    ],
)
def test_a_message_is_selected_by_what_it_says(condition: str) -> None:
    """System properties, its own, and its body."""
    assert Condition(condition, uuid4).takes(ORDER)


@pytest.mark.parametrize(
    "condition",
    [
        "color = 'blue'",
        "weight > 1",
        "body('$.a.b') = 6",
        "body('$.items[7]') = 1",
        "body('$.a.b.c') = 1",
        "sys.LockToken = newid()",
    ],
)
def test_a_message_is_left_out(condition: str) -> None:
    """Where the condition is false, or unknown."""
    assert not Condition(condition, uuid4).takes(ORDER)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (RemoteMessage.of(data=b"{a"), "The body is no JSON: Expecting property name"),
        (RemoteMessage.of(data=b"\xff"), "The body is no JSON: no UTF-8 at byte 1."),
        (RemoteMessage.of(data=b""), "The body is no JSON: Expecting value at character 1."),
        (RemoteMessage(), "The message has no body."),
        (RemoteMessage.of(sequence=[[1]]), "The body is an AMQP sequence, no JSON."),
        (RemoteMessage.of(data=b"[" * 100_000), "The JSON of the body nests too deeply."),
        (RemoteMessage.of(data=b'{"a": 1' + b"0" * 400 + b"}"), "the body is too large."),
        (RemoteMessage.of(data=b'{"a": 1' + b"0" * 5_000 + b"}"), "the body is too long."),
        (RemoteMessage.of(data=b'{"a": {}}'), "does not take a value without operators"),
    ],
)
def test_a_body_that_cannot_be_compared_is_named(message: RemoteMessage, why: str) -> None:
    """It is not left out silently."""
    with pytest.raises(FilterException) as failed:
        Condition("body('$.a') = 1", uuid4).takes(message)
    assert why in str(failed.value)


def test_a_message_that_cannot_be_read_is_named() -> None:
    """Its subject is no string; the messages behind it are looked at."""
    message = RemoteMessage(properties=NO_SUBJECT)
    with pytest.raises(FilterException, match=r"The message cannot be read: .* subject is no"):
        Condition("sys.Label = 'x'", uuid4).takes(message)


def test_a_body_that_nobody_asks_for_is_not_read() -> None:
    """AND stops before it; so a queue of several kinds of messages can be asked."""
    condition = Condition("sys.Label = 'order' AND body('$.a.b') = 5", uuid4)
    assert not condition.takes(RemoteMessage.of(data=b"no JSON"))
    assert condition.takes(ORDER)


@pytest.mark.parametrize(
    ("body", "is_taken"),
    [
        ({"value": {"a": scalars.Uint(1)}}, True),
        ({"value": '{"a": 1}'}, True),
        ({"data": '\ufeff{"a": 1}'.encode()}, True),
        ({"data": [b'{"a', b'": 1}']}, True),
        ({"value": ["a"]}, False),
    ],
)
def test_a_body_of_amqp_values_is_asked_too(body: dict[str, Any], is_taken: bool) -> None:
    """A map is one as JSON's object is; a text is JSON; several binaries are one."""
    assert Condition("body('$.a') = 1", uuid4).takes(RemoteMessage.of(**body)) is is_taken


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("color = ", "The end at character 9: a value or a condition is expected."),
        ("body('$.a') = = 1", "'=' at character 15: a value or a condition is expected."),
        ("5 = body('$.a') body('$.b')", "body('$.b') at character 17: the end is expected."),
        ("body(a) = 1", "body() at character 1 takes one path in quotes, as in body('$.a.b')."),
        ("a = 1 AND body()", "body() at character 11 takes one path"),
        ("body('$.a', 1) = 1", "body() at character 1 takes one path"),
        ("body(", "body() at character 1 takes one path"),
        ("body('a.b') = 1", "does not begin with $"),
        ("body('$.a.*') = 1", "cannot be read at its character 4"),
        ("body('$..a') = 1", "cannot be read at its character 2"),
        ("body('$.a')", "A value stands where a condition is expected"),
        ("lower(color) = 'red'", "There is no function 'lower' (at character 1)"),
        ("sys.Lable = 'order'", "There is no system property 'lable' (there is sys.Label)."),
        ("sys.SequenceNumber > 'a'", "there is no such operator for a number and a string."),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_with_its_place(
    condition: str, why: str
) -> None:
    """The places are those of the text that the user wrote."""
    with pytest.raises(InvalidRule) as refused:
        Condition(condition, uuid4)
    assert why in str(refused.value)


NAMES = st.text("ab -.'\"[]$*", min_size=1, max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(value=VALUES, data=st.data())
def test_whatever_is_in_a_body_a_path_finds_it(value: Any, data: st.DataObject) -> None:
    """By names in quotes, and by places; the same value as JSON has there."""
    text, found = "$", value
    while isinstance(found, dict | list) and found:
        keys = [
            key
            for key in (found if isinstance(found, dict) else range(len(found)))
            if not isinstance(key, str) or not {"'", '"'} <= set(key)
        ]
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        found = found[key]
        quote = '"' if isinstance(key, str) and "'" in key else "'"
        text += f"[{quote}{key}{quote}]" if isinstance(key, str) else f"[{key}]"
    assert BodyPath.read(text).find(value) == found
