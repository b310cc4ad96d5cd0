"""A settlement reaches whoever carries it out as its receiver asked for it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Disposition, Release
from bridge.engine.settlement.disposition_fields import disposition_of, outcome_of
from bridge.wire.basic import Table, long, text
from bridge.wire.commits import NO_INQUIRY, LockedMessage, LockOutcome, OutcomeKind
from bridge.wire.mapping.fields import AMQP_ENCODED

CHANGES: Table = {"a": long(7), "b": text("é"), "c": (AMQP_ENCODED, b"\x54\x01")}

properties = st.sampled_from([{}, {"a": long(7)}, CHANGES])
words = st.none() | st.text(max_size=5)
dispositions: st.SearchStrategy[Any] = (
    st.just(Complete())
    | st.builds(Abandon, properties=properties)
    | st.builds(DeadLetter, reason=words, description=words, properties=properties)
    | st.builds(Defer, properties=properties)
)


@given(dispositions)
def test_an_outcome_says_all_of_a_disposition(disposition: Disposition) -> None:
    """Whoever is told of it carries out the same."""
    assert disposition_of(*outcome_of(disposition)) == disposition


def test_what_only_makes_a_message_available_is_not_kept() -> None:
    """It comes again in any case."""
    message = LockedMessage(bytes(7), 1, 1)
    for each, is_kept in (
        (Abandon(), False),
        (Release(), False),
        (Abandon(properties=CHANGES), True),
        (Complete(), True),
        (Defer(), True),
        (DeadLetter(), True),
    ):
        kind, details = outcome_of(each)
        assert LockOutcome(message, NO_INQUIRY, kind, details).is_kept is is_kept
    assert outcome_of(Release())[0] is OutcomeKind.ABANDON
