"""A client's outcomes as the engine has them: reason and description of a dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.engine.api import DeadLetter
from bridge.gateway.links.outcomes import disposition_of
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.performatives import Error, Rejected
from bridge.wire.amqp10.types import Symbol
from bridge.wire.link_properties import DEAD_LETTER

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"


def dead_letter(info: dict[Any, Any]) -> DeadLetter:
    """Return what the engine is told of a dead letter with these properties."""
    outcome = Rejected(Error(Symbol(DEAD_LETTER), info=info))
    disposition, _ = disposition_of(outcome)
    assert isinstance(disposition, DeadLetter)
    return disposition


def test_reason_and_description_are_no_properties_beside_themselves() -> None:
    """Texts, and what is null is not said at all."""
    found = dead_letter({Symbol(REASON): "why", Symbol(DESCRIPTION): None, Symbol("a"): 1})
    assert (found.reason, found.description) == ("why", None)
    assert list(found.properties) == ["a"]


@pytest.mark.parametrize("value", [7, True, b"raw", 1.5])
def test_a_reason_of_another_type_is_a_property(value: object) -> None:
    """With its type, as at Azure, whose clients show no reason then."""
    found = dead_letter({Symbol(REASON): value, Symbol(DESCRIPTION): value})
    assert (found.reason, found.description) == (None, None)
    encoded = writing.encode(value)
    assert [found.properties[name][1] for name in (REASON, DESCRIPTION)] == [encoded] * 2
