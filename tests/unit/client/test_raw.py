"""Both libraries hand on properties as they stand on the wire; what a publish comes to is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pamqp.frame
import pika.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.address import parse, rabbitmq_url
from bridge.client.aio.raw import RawProperties as AioProperties
from bridge.client.aio.raw import raw_of, with_id
from bridge.client.core.confirms import Confirms
from bridge.client.core.wire import Refused, Unroutable
from bridge.client.exceptions import OutcomeUnknownError
from bridge.client.sync.raw import RawConnection, RawProperties
from bridge.wire import shown
from bridge.wire.basic import Properties

TYPED = Properties(
    message_id="id",
    headers={
        "octet": ("B", 7),
        "short": ("s", 7),
        "int": ("I", 7),
        "long": ("l", 7),
        "double": ("d", 1.5),
        "bytes": ("x", b"\xff"),
        "time": ("T", 5),
    },
).encode()


def test_pika_keeps_the_types_of_headers() -> None:
    """What it writes is read again, byte for byte, however the bytes come."""
    wire = pika.frame.Header(3, 10, RawProperties(TYPED)).marshal()
    assert pika.frame.decode_frame(wire)[1].properties.message_id == "id"
    for size in range(len(wire)):
        assert RawConnection._read_frame(SimpleNamespace(_frame_buffer=wire[:size])) == (0, None)
    consumed, found = RawConnection._read_frame(SimpleNamespace(_frame_buffer=wire + b"more"))
    assert (consumed, found.channel_number, found.body_size) == (len(wire), 3, 10)
    assert found.properties.raw == TYPED


def test_aio_pika_keeps_the_types_of_headers() -> None:
    """Beside what pamqp makes of them."""
    header = pamqp.header.ContentHeader(body_size=10, properties=AioProperties(TYPED, "id"))
    _, channel, found = pamqp.frame.unmarshal(pamqp.frame.marshal(header, 3))
    assert (channel, found.body_size, found.properties.message_id) == (3, 10, "id")
    assert raw_of(found) == TYPED


def test_what_has_no_id_gets_one() -> None:
    """By it aio-pika knows a message that RabbitMQ returns."""
    assert with_id(TYPED, "new") == (TYPED, "id")
    raw, message_id = with_id(Properties(type="t").encode(), "new")
    assert message_id == "new"
    assert Properties.decode(raw) == Properties(type="t", message_id="new")


def test_each_publish_is_told_once() -> None:
    """Confirmed, alone or with others; returned; refused; or nobody knows."""
    told: dict[str, Any] = {}
    confirms = Confirms()
    for name in ("a", "b", "c", "d", "e"):
        confirms.add("", name, lambda error, name=name: told.setdefault(name, error))
    confirms.on_return("", "b")
    confirms.on_confirm(2, is_multiple=True, is_taken=True)
    assert told["a"] is None
    assert isinstance(told["b"], Unroutable)
    confirms.on_confirm(4, is_multiple=False, is_taken=False)
    assert isinstance(told["d"], Refused)
    confirms.on_confirm(4, is_multiple=True, is_taken=True)
    assert told["c"] is None
    confirms.lose("the cable")
    assert isinstance(told["e"], OutcomeUnknownError)
    assert set(told) == {"a", "b", "c", "d", "e"}


@given(
    st.lists(
        st.builds(
            shown.Shown,
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**62),
            st.integers(0, 2**31),
            st.integers(0, 2),
            st.binary(max_size=40),
            st.binary(max_size=40),
            st.none() | st.integers(0, 2**62),
            death=st.none() | st.tuples(st.text(max_size=9), st.text(max_size=9)),
        ),
        max_size=4,
    )
)
def test_what_is_shown_is_read(messages: list[shown.Shown]) -> None:
    """Any message, in any number."""
    assert shown.decode(shown.encode(messages)) == messages


def test_a_lock_is_shown() -> None:
    """Its token and its end."""
    message = shown.Shown(1, 2, 3, 1, b"p", b"b", token=bytes(16), until_ms=9)
    assert shown.decode(shown.encode([message])) == [message]


def test_where_rabbitmq_is() -> None:
    """The argument first, then the connection string, then the environment."""
    azure = "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=s"
    there = {"BUSBRIDGE_RABBITMQ_URL": "amqp://c"}
    assert rabbitmq_url("amqp://a", "amqp://b", there) == "amqp://b"
    assert rabbitmq_url("amqp://a", None, there) == "amqp://a"
    assert rabbitmq_url(azure, None, there) == "amqp://c"
    with pytest.raises(ValueError, match="BUSBRIDGE_RABBITMQ_URL"):
        rabbitmq_url(azure, None, {})


def test_a_url_is_read() -> None:
    """Login and virtual host are percent-encoded; the password is in no repr."""
    found = parse("amqp://u%40x:p%2Fw@one,[::1]:7000/a%2Fb")
    assert found.hosts == (("one", 5672), ("::1", 7000))
    assert (found.user, found.password, found.vhost) == ("u@x", "p/w", "a/b")
    assert "p/w" not in repr(found)
    assert parse("amqps://one").tls is not None
    for wrong in ("http://x", "amqp://", "amqp://a/b/c", "amqp://a:b:c", "amqp://a/?x=1"):
        with pytest.raises(ValueError, match=r"URL"):
            parse(wrong)
