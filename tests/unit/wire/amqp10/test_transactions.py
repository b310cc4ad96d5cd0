"""What clients say of transactions, byte by byte, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.errors import (
    ServiceBusError,
    TransactionRolledBack,
    TransactionTimedOut,
    TransactionUnknown,
)
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.composite import decode_composite, encode_composite
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.frame import encode_frame
from bridge.wire.amqp10.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Error,
    Modified,
    Outcome,
    Rejected,
    TransactionalState,
)
from bridge.wire.amqp10.transactions import decode_request
from bridge.wire.amqp10.types import Array, Described, Symbol, Ulong
from tests.unit.wire.amqp10.values import VALUES

VALUE = b"\x00\x53\x77"

REQUESTS = st.builds(Declare) | st.builds(Discharge, st.binary(max_size=40), st.booleans())
OUTCOMES: list[Outcome] = [
    Accepted(),
    Rejected(Error("amqp:not-allowed", "why", {})),
    Modified(True, False),
    Modified(False, True),
]


@given(REQUESTS)
def test_a_request_comes_back_as_it_was(request: Declare | Discharge) -> None:
    """A declare, and a discharge with its id and its wish."""
    assert decode_request(VALUE + encode_composite(request)) == request


def test_requests_as_clients_write_them() -> None:
    """With sections around the body, nulls left out, lists without elements, symbols as names."""
    empty = bytes.fromhex("00537700533145")
    assert decode_request(empty) == Declare()
    header = writing.encode(Described(Ulong(0x70), [True]))
    discharge = bytes.fromhex("005377005332c00801a005") + b"txn:1"
    assert decode_request(header + discharge) == Discharge(b"txn:1", False)
    named = writing.encode(
        Described(
            Symbol("amqp:amqp-value:*"),
            Described(Symbol("amqp:discharge:list"), [b"\x00\xff", True]),
        )
    )
    assert decode_request(named) == Discharge(b"\x00\xff", True)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"junk",
        writing.encode(Described(Ulong(0x77), "declare")),
        writing.encode(Described(Ulong(0x77), Described(Ulong(0x24), []))),
        writing.encode(Described(Ulong(0x77), Described(Ulong(0x32), [None]))),
        writing.encode(Described(Ulong(0x77), Described(Ulong(0x32), ["text"]))),
        writing.encode(Described(Ulong(0x75), b"declare")),
        (VALUE + encode_composite(Discharge(b"txn")))[:-1],
    ],
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    """Another body, a discharge without an id or with one of another type, bytes cut short."""
    with pytest.raises(DecodeError):
        decode_request(raw)


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    """No other error."""
    for piece in (raw, VALUE + raw, VALUE + b"\x00\x53\x32" + raw):
        try:
            assert isinstance(decode_request(piece), Declare | Discharge)
        except DecodeError:
            continue


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_state_carries_its_outcome(outcome: Outcome) -> None:
    """In a disposition, and by itself; clients read the id first and the outcome second."""
    state = TransactionalState(b"txn", outcome)
    raw = encode_frame(1, Disposition(False, 7, None, True, state))
    found, _ = decode_composite(raw[8:])
    assert isinstance(found, Disposition)
    assert found.state == state
    assert encode_composite(Declared(b"txn")) == bytes.fromhex("005333c00601a003") + b"txn"


@given(VALUES)
def test_an_outcome_may_be_left_out(value: Any) -> None:
    """A message's transfer says the transaction alone, whatever follows."""
    raw = writing.encode(Described(Ulong(0x34), [b"txn"]))
    found, at = decode_composite(raw + writing.encode(value))
    assert (found, at) == (TransactionalState(b"txn"), len(raw))


def test_the_target_says_its_capabilities() -> None:
    """One, several or none."""
    for said, expected in (
        (Symbol("amqp:local-transactions"), ("amqp:local-transactions",)),
        (Array("symbol", ("amqp:local-transactions", "amqp:multi-txns-per-ssn")),) * 2,
        (None, None),
    ):
        found, _ = decode_composite(writing.encode(Described(Ulong(0x30), [said])))
        capabilities = expected.items if isinstance(expected, Array) else expected
        assert found == Coordinator(capabilities)


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (TransactionUnknown, "amqp:transaction:unknown-id"),
        (TransactionRolledBack, "amqp:transaction:rollback"),
        (TransactionTimedOut, "amqp:transaction:timeout"),
    ],
)
def test_conditions_are_those_of_the_specification(
    error: type[ServiceBusError], condition: str
) -> None:
    """Part 4, section 4.5.8; to ask again for the same transaction helps in no case."""
    assert (error.condition, error.is_retryable) == (condition, False)
