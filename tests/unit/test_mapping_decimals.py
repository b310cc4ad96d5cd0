"""Decimals of messages: one form is stored, each client gets the one that it reads."""

from __future__ import annotations

from decimal import Decimal

import pytest
from azure.servicebus._pyamqp._decode import decode_payload

from bridge.model.errors import ArgumentError
from bridge.wire import headers
from bridge.wire.amqp10.decimals import encode_decimal, encode_for_python
from bridge.wire.amqp10.message import decode_message
from bridge.wire.amqp10.primitives import (
    encode_binary,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
)
from bridge.wire.basic import Properties, bytes_in, text_in
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.inward import properties_from_map, record_from_message
from bridge.wire.mapping.outward import merge_properties, message_from_record
from bridge.wire.record import Record

PRICE = Decimal("79.90")
IEEE = encode_decimal(PRICE)
OLD = bytes.fromhex("940c3c0000") + (7990).to_bytes(12, "big")
"""The same price as Microsoft.Azure.Amqp 2.7.3 writes it: 6176 - 2 is 0x181e."""

DECIMAL64 = b"\x84" + ((398 - 2) << 53 | 7990).to_bytes(8, "big")
DECIMAL32 = b"\x74" + ((101 - 2) << 23 | 7990).to_bytes(4, "big")
NAN = b"\x94\x7c" + bytes(15)
TOO_LARGE = b"\x94" + ((6176 + 40) << 113 | 1).to_bytes(16, "big")

SECTIONS = [
    part.DELIVERY_ANNOTATIONS,
    part.MESSAGE_ANNOTATIONS,
    part.APPLICATION_PROPERTIES,
    part.FOOTER,
]


def of_section(code: int, value: bytes) -> bytes:
    """A section with one value, `price`."""
    key = encode_string if code == part.APPLICATION_PROPERTIES else encode_symbol
    return part.descriptor(code) + encode_map([(key(b"price"), value)])


def message(value: bytes, code: int = part.APPLICATION_PROPERTIES) -> bytes:
    """A message with one value in one of its sections."""
    body = part.descriptor(part.DATA) + encode_binary(b"x")
    found = of_section(code, value)
    return body + found if code == part.FOOTER else found + body


def stored(value: bytes, code: int = part.APPLICATION_PROPERTIES) -> Record:
    """What is stored of such a message."""
    return record_from_message(message(value, code), new_message_id="m").record


def shown(record: Record, **client: object) -> bytes:
    """What a client gets."""
    return message_from_record(record, sequence_number=1, enqueued_ms=1, **client)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", SECTIONS)
@pytest.mark.parametrize("said", [IEEE, OLD, DECIMAL64, DECIMAL32])
def test_each_form_is_stored_and_delivered_as_ieee_s_decimal128(said: bytes, code: int) -> None:
    """Each form that a sender may use, in properties, annotations and the footer."""
    record = stored(said, code)
    sections = bytes_in(record.properties.headers or {}, headers.SECTIONS)
    assert sections == of_section(code, IEEE)
    assert IEEE in shown(record)


def test_a_native_consumer_reads_a_decimal_as_text() -> None:
    """With its places."""
    assert text_in(stored(OLD).properties.headers or {}, "price") == "79.90"


def test_decimals_in_lists_and_maps_and_under_descriptors_are_found() -> None:
    """The Python SDK reads none of them in IEEE's form, at any depth."""
    described = b"\x00" + encode_symbol(b"my:money")
    nest = encode_list([encode_map([(encode_string(b"a"), described + OLD)]), b"\x41", OLD])
    wanted = encode_list([encode_map([(encode_string(b"a"), described + IEEE)]), b"\x41", IEEE])
    record = stored(nest)
    assert wanted in shown(record)
    read = decode_payload(memoryview(shown(record, write_decimal=encode_for_python)))
    assert read.application_properties == {b"price": [{b"a": PRICE}, True, PRICE]}


@pytest.mark.parametrize("code", SECTIONS)
@pytest.mark.parametrize("said", [NAN, TOO_LARGE])
def test_what_dotnet_cannot_hold_is_refused_by_its_name(said: bytes, code: int) -> None:
    """Its receiver would stop at such a message."""
    with pytest.raises(
        ArgumentError, match=r"'price' is a decimal that \.NET cannot hold"
    ) as found:
        stored(said, code)
    assert found.value.condition == "com.microsoft:argument-error"
    with pytest.raises(ArgumentError):
        stored(encode_list([said]), code)


@pytest.mark.parametrize("said", [NAN, TOO_LARGE, OLD])
def test_bodies_are_never_touched(said: bytes) -> None:
    """This holds for any contents."""
    body = part.descriptor(part.AMQP_VALUE) + encode_list([said])
    record = record_from_message(body, new_message_id="m").record
    assert part.split_sections(shown(record)).body_sections() == body


@pytest.mark.parametrize("code", SECTIONS)
def test_what_is_stored_already_is_put_right_on_its_way_out(code: int) -> None:
    """As older versions stored it: as it came. What no client can read is text."""
    for said, wanted in [
        (OLD, IEEE),
        (DECIMAL64, IEEE),
        (DECIMAL32, IEEE),
        (NAN, encode_string(b"NaN")),
        (TOO_LARGE, encode_string(b"1E+40")),
    ]:
        sections = of_section(code, said)
        table = {headers.SECTIONS: ("x", sections)}
        record = Record(Properties(headers=table), b"x")
        assert of_section(code, wanted)[3:].removeprefix(b"\xc1")[2:] in shown(record)


def test_the_python_sdk_has_what_it_reads() -> None:
    """In properties and annotations: it stops at IEEE's form."""
    for code in SECTIONS:
        raw = shown(stored(IEEE, code), write_decimal=encode_for_python)
        read = decode_payload(memoryview(raw))
        found = {
            part.DELIVERY_ANNOTATIONS: read.delivery_annotations,
            part.MESSAGE_ANNOTATIONS: read.message_annotations,
            part.APPLICATION_PROPERTIES: read.application_properties,
            part.FOOTER: read.footer,
        }[code]
        assert found[b"price"] == PRICE


def test_the_properties_of_a_settlement_are_stored_and_refused_alike() -> None:
    """An abandon with properties to modify, for one."""

    def changes(value: bytes) -> bytes:
        return encode_map([(encode_string(b"price"), value)])

    record = merge_properties(
        Record(Properties(headers={}), b"x"), properties_from_map(changes(OLD))
    )
    assert IEEE in shown(record)
    with pytest.raises(ArgumentError, match="'price' is a decimal"):
        properties_from_map(changes(NAN))


def test_other_values_of_the_section_keep_their_bytes() -> None:
    """Beside a decimal that is written anew."""
    pairs = [
        (encode_string(b"price"), OLD),
        (encode_string(b"id"), b"\x98" + bytes(range(16))),
        (encode_string(b"many"), encode_list([b"\x80" + bytes(8), b"\x45"])),
        (encode_string(b"nothing"), b"\x40"),
    ]
    raw = part.descriptor(part.APPLICATION_PROPERTIES) + encode_map(pairs)
    record = record_from_message(raw, new_message_id="m").record
    found = part.split_sections(shown(record))
    assert found.section(part.APPLICATION_PROPERTIES) == raw.replace(OLD, IEEE)
    assert decode_message(found.raw).application_properties["nothing"] is None
