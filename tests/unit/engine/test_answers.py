"""Errors that another process reports."""

from __future__ import annotations

import pytest

from bridge.engine.sending.answers import error_of
from bridge.model import errors
from bridge.model.errors import EntityChanged, ServiceBusError
from bridge.wire.reply import Refusal

KINDS = [each for each in ServiceBusError.__subclasses__() if each is not EntityChanged]
"""`EntityChanged` is told as the conflict that it is."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_an_error_stays_what_it_is_on_its_way(kind: type[ServiceBusError]) -> None:
    """So who asked another bridge knows whether to try again."""
    told = error_of(Refusal(kind.condition, "why"))
    assert type(told) is kind
    assert str(told) == "why"
    assert told.is_retryable == kind.is_retryable


def test_a_transaction_in_doubt_is_a_time_out_that_is_not_tried_again() -> None:
    """Its condition says what a client is to know: it may have been carried out."""
    assert errors.TransactionInDoubt.condition == errors.OperationTimeout.condition
    assert not errors.TransactionInDoubt.is_retryable
