"""What administration adds to authorization rules: keys, and the times of their changes."""

from __future__ import annotations

from dataclasses import replace

from bridge.admin.keys import with_keys
from bridge.model.entity import AuthorizationRule, Queue, Right

SEND, LISTEN = frozenset({Right.SEND}), frozenset({Right.LISTEN})


def rule(name: str, rights: frozenset[Right] = SEND, key: str = "") -> AuthorizationRule:
    """Return a rule as a client gives it."""
    return AuthorizationRule(name=name, primary_key=key, rights=rights)


def times(queue: Queue) -> list[tuple[str, str]]:
    """Return the times of each rule."""
    return [(each.created_at, each.modified_at) for each in queue.authorization_rules]


def test_a_rule_has_the_times_of_its_making_and_of_its_last_change() -> None:
    """A change of rights or of a key is one; the rest of the entity is not."""
    queue = Queue(name="q", authorization_rules=(rule("a"), rule("b")))
    made = with_keys(queue, (), "1")
    assert times(made) == [("1", "1"), ("1", "1")]

    again = with_keys(queue, made.authorization_rules, "2")
    assert again == made
    assert times(again) == times(made)

    changed = replace(queue, authorization_rules=(rule("A", LISTEN), rule("b", key="k"), rule("c")))
    found = with_keys(changed, made.authorization_rules, "3")
    assert times(found) == [("1", "3"), ("1", "3"), ("3", "3")]
    assert found.authorization_rules[0].primary_key == made.authorization_rules[0].primary_key


def test_a_rule_of_an_older_version_has_no_time_until_it_changes() -> None:
    """When it was made is not known."""
    old = rule("a", key="k")
    queue = Queue(name="q", authorization_rules=(replace(old, secondary_key="l"),))
    assert times(with_keys(queue, queue.authorization_rules, "1")) == [("", "")]
    changed = replace(queue, authorization_rules=(rule("a", LISTEN),))
    assert times(with_keys(changed, queue.authorization_rules, "1")) == [("", "1")]
