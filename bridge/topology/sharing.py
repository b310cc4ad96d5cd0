"""Shared policies: queues of equal settings are listed in one, and a change writes few of them.

RabbitMQ applies one policy to a queue, the matching one of the highest priority. When a policy is
put it tries every policy on every queue, and writes every queue anew whose policy is another text.
So a policy lists `NAMES_MAX` queues at most, and what is right stays as it is, whoever wrote it: a
new name joins a policy with room, a name that goes leaves its own policy alone.

Where a virtual host has no quorum queues but the bridge's (`everywhere`), one pattern gives the
commonest settings to every name that an entity can have, and lists only name the exceptions. Then a
queue of such settings needs no policy written at all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from bridge.topology.capabilities import PATTERN_BYTES_MAX
from bridge.topology.names import SHARD_SUFFIX
from bridge.topology.parts import SCHEMA_ARGUMENT
from bridge.topology.patterns import escape, fits, names_in, packed_bytes, pattern_of, patterns
from bridge.topology.policy import PREFIX, PRIORITY, PROTECTED_PRIORITY
from bridge.topology.resources import Policy, Topology, Value

Settings = Mapping[str, Mapping[str, Value]]

NAMES_MAX = 100
"""The most queues that a new list has: RabbitMQ writes each of them anew when the list changes."""

EVERYWHERE = PREFIX + "entities"
"""Name of the policy with the commonest settings, where a virtual host is the bridge's alone."""

_SHORT = {
    "delivery-limit": "limit",
    "max-length-bytes": "size",
    "message-ttl": "ttl",
}


_ENTITY = re.compile(rf"(?:\$amq\.)?[^$A-Z]+(?:{escape(SHARD_SUFFIX)}[0-9]+)?")
"""A name that an active queue can have; with a `$` it is the bridge's in any case."""


def _none(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The policies that are there, and how queues share policies.

    Attributes:
        live: the policies that are there; what is right in them stays.
        keeps: whether a live policy goes on listing a queue without settings: another bridge may
            be making it.
        is_own: the virtual host has no quorum queues but the bridge's, by the word of its owner.
            Where the policy with the commonest settings is there, this was said before.
        others: a user's own quorum queues all the same; None when nobody has looked.
        names_max: the most queues that a new list has.
        bytes_max: the most bytes that a pattern has.
    """

    live: Sequence[Policy] = ()
    keeps: Callable[[str], bool] = _none
    is_own: bool = False
    others: Collection[str] | None = None
    names_max: int = NAMES_MAX
    bytes_max: int = PATTERN_BYTES_MAX


NOTHING_THERE = Sharing()
"""No policies are there, and the virtual host may have queues of others."""


@dataclass(slots=True)
class _List:
    """A policy that lists queues; `there` is the live one, None when that lists others."""

    name: str
    definition: dict[str, Value]
    names: list[str]
    apply_to: str = "queues"
    there: Policy | None = None


def share(
    settings: Settings, sharing: Sharing = NOTHING_THERE, *, priority: int = PRIORITY
) -> tuple[Policy, ...]:
    """Return the policies that give each queue its settings; queues without settings get none.

    A dead-letter exchange belongs to one queue: a queue with one in its settings gets a policy of
    its own.
    """
    common = _everywhere(settings, sharing, priority)
    wanted = {
        name: _sorted(given)
        for name, given in settings.items()
        if given and not (common and given == common.definition and _ENTITY.fullmatch(name))
    }
    own = {name: given for name, given in wanted.items() if "dead-letter-exchange" in given}
    shared = {name: given for name, given in wanted.items() if name not in own}
    lists = _right_lists(shared, settings, sharing, priority)
    _add_missing(lists, shared, sharing)
    return (
        *((common,) if common else ()),
        *(
            Policy(
                name=PREFIX + name,
                pattern=f"^{escape(name)}$",
                definition=own[name],
                priority=priority,
            )
            for name in sorted(own)
        ),
        *(
            each.there
            or Policy(
                name=each.name,
                pattern=pattern_of(sorted(each.names), sharing.bytes_max),
                definition=each.definition,
                priority=priority,
                apply_to=each.apply_to,
            )
            for each in sorted(lists, key=lambda each: each.name)
        ),
    )


def _sorted(given: Mapping[str, Value]) -> dict[str, Value]:
    return {key: given[key] for key in sorted(given)}


def _right_lists(
    wanted: Mapping[str, dict[str, Value]], settings: Settings, sharing: Sharing, priority: int
) -> list[_List]:
    """Return what is right in the live lists; each queue is in one of them at most."""
    found: list[_List] = []
    taken: set[str] = set()
    for policy in sorted(sharing.live, key=lambda each: each.name):
        listed = names_in(policy.pattern) if is_list(policy) else None
        if listed is None or policy.priority != priority:
            continue
        right = [
            name
            for name in listed - taken
            if (
                sharing.keeps(name)
                if name not in settings
                else wanted.get(name) == policy.definition
            )
        ]
        if right:
            taken.update(right)
            there = policy if len(right) == len(listed) else None
            found.append(_List(policy.name, policy.definition, right, policy.apply_to, there))
    return found


def _add_missing(
    lists: list[_List], wanted: Mapping[str, dict[str, Value]], sharing: Sharing
) -> None:
    """Add the queues that are in no list, to lists with room and then to new ones."""
    missing: dict[str, list[str]] = defaultdict(list)
    definitions: dict[str, dict[str, Value]] = {}
    for name in sorted(wanted.keys() - {name for each in lists for name in each.names}):
        base = name_of(wanted[name])
        missing[base].append(name)
        definitions[base] = wanted[name]
    for base, left in sorted(missing.items()):
        for each in sorted(lists, key=lambda each: (-len(each.names), each.name)):
            if each.definition == definitions[base]:
                left = _fill(each, left, sharing)
        used = {each.name for each in lists}
        numbered = (base if n == 1 else f"{base}.{n}" for n in count(1))
        free = (name for name in numbered if name not in used)
        for pattern in patterns(left, sharing.bytes_max, sharing.names_max):
            names = sorted(names_in(pattern) or ())
            lists.append(_List(next(free), definitions[base], names))


def _fill(each: _List, names: list[str], sharing: Sharing) -> list[str]:
    """Add as many names to a list as it has room for; return the others."""
    room = max(0, min(sharing.names_max - len(each.names), len(names)))
    if room and each.there and packed_bytes(each.there.pattern) + len(names[0]) > sharing.bytes_max:
        return names  # without trying: most lists are full
    while room and not fits(sorted([*each.names, *names[:room]]), sharing.bytes_max):
        room //= 2
    if room:
        each.names += names[:room]
        each.there = None
    return names[room:]


def name_of(definition: Mapping[str, Value]) -> str:
    """Return the name of a shared policy, which lists the policy's settings."""
    settings = (f"{_SHORT.get(key, key)}-{definition[key]}" for key in sorted(definition))
    return PREFIX + ".".join(settings)


def is_list(policy: Policy) -> bool:
    """Whether a policy is one of the bridge's lists, with the settings that its name says."""
    base = name_of(policy.definition)
    rest = policy.name.removeprefix(base)
    return (
        not policy.is_operator
        and policy.name.startswith(base)
        and re.fullmatch(r"(?:\.[0-9]+)?", rest) is not None
        and policy.apply_to in ("queues", "quorum_queues")
        and policy.priority < PROTECTED_PRIORITY
    )


def _everywhere(settings: Settings, sharing: Sharing, priority: int) -> Policy | None:
    """Return the policy with the commonest settings; None where queues are listed only."""
    there = next((each for each in sharing.live if each.name == EVERYWHERE), None)
    if there is None and not sharing.is_own:
        return None
    definition = commonest(settings) if there is None else there.definition
    others = spared(there) if sharing.others is None else sharing.others
    pattern = _everywhere_but([name for name in others if name not in settings])
    if not definition or len(pattern) > sharing.bytes_max:
        return None
    return Policy(
        name=EVERYWHERE,
        pattern=pattern,
        definition=_sorted(definition),
        priority=priority - 1,
        apply_to="quorum_queues",
    )


def _everywhere_but(others: Iterable[str]) -> str:
    """Return a pattern of all names that an active queue can have, without some."""
    listed = sorted(name for name in others if _ENTITY.fullmatch(name))
    lookahead = f"(?!{pattern_of(listed)[1:]})" if listed else ""
    return f"^{lookahead}{_ENTITY.pattern}$"


def spared(policy: Policy | None) -> frozenset[str]:
    """Return the queues that the policy with the commonest settings leaves out by name."""
    found = policy and re.match(r"\^\(\?!(.*\$)\)", policy.pattern)
    return frozenset() if not found else names_in("^" + found[1]) or frozenset()


def others(live: Topology) -> frozenset[str]:
    """Return the quorum queues of a virtual host that the bridge has not made."""
    return frozenset(
        queue.name
        for queue in live.queues
        if queue.arguments.get("x-queue-type") == "quorum"
        and SCHEMA_ARGUMENT not in queue.arguments
    )


def commonest(settings: Settings) -> Mapping[str, Value]:
    """Return the settings that most queues have; of several the first by name."""
    counted = Counter(name_of(each) for each in settings.values() if each)
    by_name = {name_of(each): each for each in settings.values() if each}
    return by_name[max(sorted(counted), key=lambda name: counted[name])] if counted else {}


def priority_of(policies: Iterable[Policy]) -> int:
    """Return the priority of the bridge's lists, which `busbridge policies apply` may set."""
    ours = (
        policy.priority + (policy.name == EVERYWHERE)
        for policy in policies
        if policy.name.startswith(PREFIX)
        and not policy.is_operator
        and policy.priority < PROTECTED_PRIORITY
    )
    return max(ours, default=PRIORITY)


def levels(policies: Iterable[Policy]) -> int:
    """Return how many priorities the bridge's lists have, with the one of `EVERYWHERE` below."""
    return 1 + any(policy.name == EVERYWHERE for policy in policies)
