"""XML from strangers: refused or read, and never for long."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.errors import ArgumentError
from bridge.wire.atom.descriptions import described_kind, read_entity, read_rule
from bridge.wire.atom.documents import BODY_BYTES_MAX, read_description
from tests.fixtures.examples import examples

LONG_S = 1.0
"""A tenth of it is the limit; this separates what is linear from what is not on a busy machine."""

_ATOM = '<entry xmlns="http://www.w3.org/2005/Atom"><content>'
_QUEUE = (
    '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
)
_END = "</QueueDescription></content></entry>"


def filled(pattern: str, room: int = BODY_BYTES_MAX - 1_000) -> str:
    """Return a pattern as often as there is room for it."""
    return pattern * (room // len(pattern.encode()))


HOSTILE = {
    "declarations": filled("<?xml "),
    "instructions": filled("<?xml?>"),
    "comments in text": _ATOM + _QUEUE + "<UserMetadata>" + filled("a<!---->"),
    "references": _ATOM + _QUEUE + "<UserMetadata>" + filled("&amp;") + "</UserMetadata>" + _END,
    "depth": filled("<a>"),
    "siblings": _ATOM + _QUEUE + filled("<a/>") + _END,
    "siblings below long names": (
        "".join(f"<{'n' * 600}>" for _ in range(90)) + filled("<a/>", 8_000)
    ),
    "attributes": "<a " + "".join(f'a{number}="" ' for number in range(7_000)) + "/>",
    "namespaces": "<a " + "".join(f'xmlns:a{number}="u" ' for number in range(4_000)) + "/>",
    "equal attributes": "<a " + filled('a="" ') + "/>",
    "one long attribute": '<a b="' + filled("x") + '"/>',
    "line ends": filled("\r") + "<",
    "unclosed": filled("<a>x</a>") + "<",
    "long number": (
        _ATOM + _QUEUE + "<MaxDeliveryCount>" + filled("9") + "</MaxDeliveryCount>" + _END
    ),
    "long duration": _ATOM + _QUEUE + "<LockDuration>P" + filled("9") + "D</LockDuration>" + _END,
    "long clock": _ATOM + _QUEUE + "<LockDuration>" + filled("9") + "</LockDuration>" + _END,
    "many rules": (
        _ATOM + _QUEUE + "<AuthorizationRules>" + filled("<R><KeyName>a</KeyName></R>")
        + "</AuthorizationRules>" + _END
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_costs_long(text: str) -> None:
    """Any text is taken or refused in time that grows with its length only."""
    body = text.encode()
    assert len(body) <= BODY_BYTES_MAX
    begun_s = time.process_time()
    with pytest.raises(ArgumentError):
        read_entity(read_description(body), {"name": "-"})
    assert time.process_time() - begun_s < LONG_S


def test_no_entity_is_expanded() -> None:
    """A document type declaration is refused before anything of it is looked at."""
    lines = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    text = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "x">{lines}]><a>&a9;</a>'

    with pytest.raises(ArgumentError, match="document type declaration"):
        read_description(text.encode())
    with pytest.raises(ArgumentError, match="not valid"):
        read_description(b"<a>&b;</a>")


def test_what_is_too_long_is_not_parsed() -> None:
    """A description has a bound."""
    with pytest.raises(ArgumentError, match="bytes at most"):
        read_description(b"<" * (BODY_BYTES_MAX + 1))


@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="<>/&;a\"'=x: ", max_size=60)))
def test_whatever_comes_is_read_or_refused(noise: bytes | str) -> None:
    """Nothing but our own error comes out."""
    text = noise if isinstance(noise, bytes) else noise.encode()
    for body in (text, (_ATOM + _QUEUE).encode() + text + _END.encode()):
        with contextlib.suppress(ArgumentError):
            description = read_description(body)
            if described_kind(description) is not None:
                read_entity(description, {"name": "q"})
            read_rule(description)
