"""Fan-out to subscriptions that require sessions: what has no session id is a dead letter there."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from bridge.machine.inbox.fanout import NO_SESSION_DESCRIPTION, NO_SESSION_REASON, Fanout
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.publication import Publication
from bridge.model.entity import DEFAULT_RULE, Rule, Subscription, Topic, TrueFilter
from bridge.model.name import short_id
from bridge.topology import names
from bridge.wire import copies, headers, stamp
from bridge.wire.basic import Properties, Table, text
from bridge.wire.envelope import Item, item_identity
from bridge.wire.message_view import MessageView

IDENTITY = item_identity(bytes(range(16)), 0)
OWN = stamp.derived(IDENTITY, short_id("strict"), b"session")


def topic(*rules: Rule) -> Topic:
    """A topic with a plain subscription and one that requires sessions."""
    return Topic(
        name="t",
        subscriptions=(
            Subscription(topic="t", name="plain", incarnation="plain"),
            Subscription(
                topic="t",
                name="strict",
                incarnation="strict",
                requires_session=True,
                rules=rules or (DEFAULT_RULE,),
            ),
        ),
    )


def fanned(
    session: str | None, *rules: Rule, others: Mapping[bytes, Known] | None = None
) -> list[Publication]:
    """What is published for a message with this session id, or none."""
    table: Table = {} if session is None else {headers.SESSION_ID: text(session)}
    item = Item(Properties(headers=table, delivery_mode=2).encode(), b"body")
    view = MessageView(item, number=7, enqueued_ms=1_000, ttl_ms=None)
    fanout = Fanout(topic(*rules), {}, {}, lambda: UUID(int=0))
    fields = stamp.active(7, 1_000, IDENTITY, None)
    return fanout.publications(view, IDENTITY, fields, None, others or {})


def reached(publication: Publication) -> tuple[set[str], Table]:
    """The names of the subscriptions whose copies a publication lists, and its headers."""
    table = Properties.decode(publication.properties).headers or {}
    raw = table[headers.COPIES][1]
    assert isinstance(raw, bytes)
    shorts = {short_id(name): name for name in ("plain", "strict")}
    return {shorts[short] for short, _ in copies.decode(raw)[0]}, table


@pytest.mark.parametrize("session", ["one", ""])
def test_a_message_of_a_session_is_published_once_for_all(session: str) -> None:
    """The empty text is a session id, too."""
    (publication,) = fanned(session)

    assert reached(publication)[0] == {"plain", "strict"}


def test_a_message_without_a_session_id_is_a_dead_letter_of_those_that_require_one() -> None:
    """With Azure's reason and description, under a number of its own; the others have it."""
    plain, dead = fanned(None)

    assert reached(plain)[0] == {"plain"}
    found, table = reached(dead)
    assert found == {"strict"}
    assert (dead.exchange, dead.routing_key) == ("", names.journal("t"))
    queues = names.moved("t"), names.dead_letter_queue("t/Subscriptions/strict")
    assert table["BCC"][1] == [("S", queue.encode()) for queue in queues]
    assert table[headers.DEAD_LETTER_REASON] == text(NO_SESSION_REASON)
    assert table[headers.DEAD_LETTER_ERROR_DESCRIPTION] == text(NO_SESSION_DESCRIPTION)


def test_a_dead_letter_that_the_journal_knows_is_not_published_again() -> None:
    """After a crash: one that is stored stays; one that may be lost is published by its number."""
    listed = copies.encode(((short_id("strict"), 41),), 1)
    (again,) = fanned(None, others={OWN: Known(7, 1_000, True, listed)})
    assert reached(again)[0] == {"plain"}

    _, dead = fanned(None, others={OWN: Known(7, 1_000, False, listed)})
    raw = reached(dead)[1][headers.COPIES][1]
    assert isinstance(raw, bytes)
    assert copies.decode(raw)[0] == ((short_id("strict"), 41),)


@pytest.mark.parametrize(
    ("session", "action", "is_dead"),
    [
        (None, "SET sys.SessionId = 'mine'", False),
        ("one", "REMOVE sys.SessionId", True),
        ("one", "SET a = 1", False),
        (None, "SET a = 1", True),
    ],
)
def test_of_a_copy_that_an_action_changed_its_own_session_id_counts(
    session: str | None, action: str, is_dead: bool
) -> None:
    """The subscription gets the message as the action leaves it, or has it as a dead letter."""
    rule = Rule(name="act", filter=TrueFilter(), action=action)
    plain, copy = fanned(session, rule)

    assert reached(plain)[0] == {"plain"}
    found, table = reached(copy)
    assert found == {"strict"}
    assert (headers.DEAD_LETTER_REASON in table) == is_dead
    assert table["RuleName"] == text("act")
