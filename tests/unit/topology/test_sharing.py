"""Shared policies: every queue has its settings, no other queue has any, and little is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.topology.diff import Action, diff
from bridge.topology.policy import PRIORITY, winners
from bridge.topology.resources import Policy, Queue, Topology, Value
from bridge.topology.sharing import EVERYWHERE, Sharing, priority_of, share, spared

Settings = Mapping[str, Value]

NAMES = ["orders", "orders-1", "orders-2", "order", "a.b", "axb", "$amq.x", "shop/a", "shop/b"]
SHARDS = ["orders/$shard/1", "shop/a/$shard/2"]
KINDS: list[dict[str, Value]] = [
    {"delivery-limit": 9, "max-length-bytes": 7},
    {"delivery-limit": 9, "max-length-bytes": 7, "message-ttl": 5},
    {"delivery-limit": 4, "max-length-bytes": 7},
]
INNER = ["orders/$inbox", "orders/$deadletterqueue", "$sb/lapsed", "shop/a/$shard/2/$sessions"]


def queue(name: str) -> Queue:
    """A quorum queue."""
    return Queue(name=name, arguments={"x-queue-type": "quorum"})


@dataclass
class Vhost:
    """A model of a virtual host: its policies, and what is written to them."""

    live: dict[str, Policy] = field(default_factory=dict)
    settings: dict[str, Settings] = field(default_factory=dict)
    strangers: set[str] = field(default_factory=set)
    written: list[str] = field(default_factory=list)

    def in_force(self, name: str) -> list[Settings]:
        """The settings that RabbitMQ may apply to a queue: one, or none."""
        return [policy.definition for policy in winners(queue(name), self.live.values())]

    def put(
        self,
        sharing: Sharing,
        unknown: frozenset[str] = frozenset(),
        *,
        is_look: bool = False,
    ) -> None:
        """Put the policies as a bridge does that does not know some entities yet."""
        known = {name: each for name, each in self.settings.items() if name not in unknown}
        strangers: set[str] = set()
        gone = frozenset(self.strangers) if is_look else frozenset()

        def keeps(name: str) -> bool:
            strangers.add(name)
            return name not in gone

        there = tuple(self.live.values())
        priority = priority_of(there)
        wanted = share(
            known,
            Sharing(
                live=there,
                keeps=keeps,
                is_own=sharing.is_own,
                others=sharing.others,
                names_max=sharing.names_max,
                bytes_max=sharing.bytes_max,
            ),
            priority=priority,
        )
        if is_look:
            self.strangers = strangers - gone
        self.carry_out(wanted, known)

    def carry_out(self, wanted: tuple[Policy, ...], known: Mapping[str, Settings]) -> None:
        """Make the changes one by one: no queue is without its settings on the way."""
        self.written = []
        before = {name: self.in_force(name) for name in known}
        live = Topology(queues=tuple(map(queue, known)), policies=tuple(self.live.values()))
        for change in diff(Topology(policies=wanted), live, keep=True):
            policy = change.resource
            assert isinstance(policy, Policy)
            self.written.append(policy.name)
            if change.action is Action.DELETE:
                del self.live[policy.name]
            else:
                self.live[policy.name] = policy
            for name, kind in known.items():
                assert all(each in (*before[name], kind) for each in self.in_force(name)), name
                assert self.in_force(name) or not before[name], name


VERBS = st.tuples(
    st.sampled_from(["make", "make unseen", "delete", "look", "older version"]),
    st.sampled_from(NAMES + SHARDS),
    st.sampled_from(KINDS),
)


@given(
    st.lists(VERBS, max_size=30),
    st.booleans(),
    st.sampled_from([1, 2, 32]),
    st.sampled_from([40, 1_024]),
)
def test_every_queue_has_its_settings_and_no_other_queue_has_any(
    history: list[tuple[str, str, Settings]], is_own: bool, names_max: int, bytes_max: int
) -> None:
    """This or another bridge may make, change and delete entities, in any order."""
    vhost = Vhost()
    sharing = Sharing(
        is_own=is_own,
        names_max=names_max,
        bytes_max=1_024 if is_own else bytes_max,
    )
    for verb, name, kind in history:
        unknown: frozenset[str] = frozenset()
        if verb == "delete":
            vhost.settings.pop(name, None)
        elif verb.startswith("make"):
            in_use = kind in vhost.settings.values()
            is_new = name not in vhost.settings
            vhost.settings[name] = kind
            vhost.put(sharing)
            if is_new and in_use and name not in vhost.strangers:
                assert len(vhost.written) <= 1
                common = vhost.live.get(EVERYWHERE)
                assert not vhost.written or common is None or kind != common.definition
            if verb == "make unseen":
                unknown = frozenset({name})
        elif verb == "older version" and not is_own:
            older = Sharing(names_max=10_000, bytes_max=sharing.bytes_max)
            vhost.carry_out(share(vhost.settings, older), vhost.settings)
        if verb in ("look", "delete"):
            vhost.put(sharing, is_look=verb == "look")
        vhost.put(sharing, unknown)
        for each, kind in vhost.settings.items():
            assert vhost.in_force(each) == [kind]
        vhost.put(sharing)
        assert vhost.written == []
    for _ in range(2):
        vhost.put(sharing, is_look=True)
    for each in (*NAMES, *SHARDS, *INNER):
        is_covered = is_own and vhost.settings and each not in INNER
        if each not in vhost.settings and not is_covered:
            assert vhost.in_force(each) == []
    users = Sharing(is_own=is_own, others=set(NAMES) - vhost.settings.keys())
    vhost.put(users)
    for each in set(NAMES) - vhost.settings.keys():
        assert vhost.in_force(each) == []
    for each, kind in vhost.settings.items():
        assert vhost.in_force(each) == [kind]


def changed(before: Sequence[Policy], after: Sequence[Policy]) -> list[str]:
    """The names of the policies that are new, different or gone."""
    old, new = ({each.name: each for each in found} for found in (before, after))
    return [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]


def test_a_new_queue_of_settings_in_use_changes_one_list_and_no_other() -> None:
    """Its name sorts before, between or behind the others."""
    settings = {f"q{number:03}": KINDS[number % 2] for number in range(1, 500)}
    there = share(settings)
    assert len(there) == 6
    for name in ("a", "q150b", "z"):
        now = share({**settings, name: KINDS[0]}, Sharing(live=there))
        assert len(changed(there, now)) == 1


def test_a_queue_that_goes_or_changes_leaves_all_other_lists_alone() -> None:
    """Its own list loses the name, and another list may gain it."""
    settings = {f"q{number:03}": KINDS[number % 2] for number in range(500)}
    there = share(settings)
    now = share({**settings, "q100": KINDS[1]}, Sharing(live=there))
    assert len(changed(there, now)) == 2
    del settings["q100"]
    assert len(changed(there, share(settings, Sharing(live=there)))) == 1


def test_what_is_right_stays_in_whatever_form_another_version_wrote_it() -> None:
    """One list of all queues, as older bridges write it, is not written again."""
    settings = {f"q{number:03}": KINDS[0] for number in range(200)}
    older = share(settings, Sharing(names_max=10_000))
    assert len(older) < len(share(settings))
    assert share(settings, Sharing(live=older)) == older


@pytest.mark.parametrize("is_own", [True, False])
def test_the_policy_with_the_commonest_settings_comes_by_the_owners_word_and_stays(
    is_own: bool,
) -> None:
    """Where it is there, nobody has to say it again; its settings stay when others get commoner."""
    settings = {"a": KINDS[0], "b": KINDS[0], "c": KINDS[1]}
    found = share(settings, Sharing(is_own=is_own))
    assert [each.name == EVERYWHERE for each in found] == [True, False][: len(found)] or not is_own
    assert (EVERYWHERE in {each.name for each in found}) is is_own
    more = settings | {"d": KINDS[1], "e": KINDS[1]}
    again = share(more, Sharing(live=found))
    assert (EVERYWHERE in {each.name for each in again}) is is_own
    assert priority_of(again) == PRIORITY


def test_the_policy_with_the_commonest_settings_leaves_out_users_queues() -> None:
    """Also when nobody has looked again; an entity of that name is taken all the same."""
    settings = {"orders": KINDS[0]}
    (found,) = share(settings, Sharing(is_own=True, others=["theirs", "mine.2"]))
    assert spared(found) == {"theirs", "mine.2"}
    assert winners(queue("theirs"), [found]) == ()
    assert winners(queue("mine.2"), [found]) == ()
    assert winners(queue("mine-2"), [found]) == (found,)
    assert share(settings, Sharing(live=[found])) == (found,)
    (taken,) = share(settings | {"theirs": KINDS[0]}, Sharing(live=[found]))
    assert spared(taken) == {"mine.2"}
    too_many = [f"their-queue-{number * 7919}" for number in range(1_000)]
    assert EVERYWHERE not in {
        each.name for each in share(settings, Sharing(live=[found], others=too_many))
    }


def test_classic_queues_and_streams_are_never_taken_by_the_commonest_settings() -> None:
    """Entities' active queues are quorum queues."""
    (found,) = share({"orders": KINDS[0]}, Sharing(is_own=True))
    assert winners(Queue(name="theirs"), [found]) == ()
    assert winners(Queue(name="theirs", arguments={"x-queue-type": "stream"}), [found]) == ()


def test_queues_of_equal_settings_share_a_policy() -> None:
    """One policy per setting, named after it; a queue without settings has none."""
    shared = share({"b": {"x": 1}, "a": {"x": 1}, "c": {"x": 2}, "d": {}}, priority=7)
    assert [
        Policy(name="busbridge.x-1", pattern="^(?:a|b)$", definition={"x": 1}, priority=7),
        Policy(name="busbridge.x-2", pattern="^c$", definition={"x": 2}, priority=7),
    ] == list(shared)
