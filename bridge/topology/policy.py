"""Policies: as few as RabbitMQ's limit on patterns allows, each for an exact list of queues.

RabbitMQ applies one policy to a queue, the matching one of the highest priority. It matches every
policy with every queue whenever a policy changes. So queues with equal settings share a policy. The
policy's pattern lists their names in full. Names that do not fit are packed by their common
prefixes, and spread over several policies when that is not enough.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from bridge.model.errors import ArgumentError
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, PATTERN_BYTES_MAX, TTL_MAX_MS
from bridge.topology.names import (
    BRIDGE_QUEUES,
    BUCKETS_SUFFIX,
    DEAD_LETTER_SUFFIX,
    DEFERRED_SUFFIX,
    EXPIRED_UNNUMBERED,
    HISTORY_SUFFIX,
    INBOX_SUFFIX,
    JOURNAL_SUFFIX,
    MOVED_SUFFIX,
    SESSIONS_SUFFIX,
    SETTLED_SUFFIX,
    SINK,
    journal,
)
from bridge.topology.parts import HISTORY_BYTES_MAX, JOURNAL_BYTES_MAX, SETTLED_BYTES_MAX
from bridge.topology.resources import Policy, Queue, Value

PREFIX = "busbridge."
"""Prefix of the names of the bridge's policies; the bridge changes no other policies."""

PRIORITY = 50
"""Above the usual priorities of catch-all policies (0 to 10), with room above for users' own
policies."""

PROTECTED_PRIORITY = 1_000
"""Priority of the policies for queues that must keep every message: above any user's catch-all."""

RAISED_PREFIX = PREFIX + "$journal/"
"""Prefix of the names of policies that raise the size limit of one entity's journal. Bridges set
and delete these policies while they run; no definition contains them."""

MEBIBYTE = 1_048_576

_SHORT = {
    "delivery-limit": "limit",
    "max-length-bytes": "size",
    "message-ttl": "ttl",
}
_SCOPE_OF_TYPE = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}
_SPECIAL = frozenset("\\^$.[]|()?*+{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Limits that no queue of a virtual host may exceed, whoever made it. None: no limit.

    Raises:
        ArgumentError: a limit is 0 or negative, so that no message could stay.
    """

    time_to_live_ms: int | None = None
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        for what, given in (("TTL", self.time_to_live_ms), ("size", self.size_bytes)):
            if given is not None and given <= 0:
                raise ArgumentError(f"A ceiling of {given} for the {what} leaves no message alive.")


def escape(name: str) -> str:
    """Return a pattern (PCRE, as Erlang's `re` reads it) that matches exactly `name`."""
    return "".join("\\" + char if char in _SPECIAL else char for char in name)


def matches(policy: Policy, queue: str) -> bool:
    """Whether a policy's pattern matches a queue's name (RabbitMQ: `re:run`, unanchored).

    A pattern that Python cannot read (PCRE has more syntax) counts as a match.
    """
    try:
        return re.search(policy.pattern, queue) is not None
    except re.error:
        return True


def winners(queue: Queue, policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Return the matching policies of the highest priority: RabbitMQ applies one of them.

    Of several, RabbitMQ applies the first that it finds; the order is not documented. Operator
    policies are left out, unless only operator policies match.
    """
    scopes = {"all", "queues", _SCOPE_OF_TYPE[str(queue.arguments.get("x-queue-type", "classic"))]}
    matching = [p for p in policies if p.apply_to in scopes and matches(p, queue.name)]
    if not all(policy.is_operator for policy in matching):
        matching = [policy for policy in matching if not policy.is_operator]
    highest = max((policy.priority for policy in matching), default=0)
    return tuple(policy for policy in matching if policy.priority == highest)


def share(
    settings: Mapping[str, Mapping[str, Value]],
    *,
    priority: int = PRIORITY,
    pattern_bytes_max: int = PATTERN_BYTES_MAX,
) -> tuple[Policy, ...]:
    """Return the policies that give each queue its settings; queues without settings get none.

    A dead-letter exchange belongs to one queue: a queue with one in its settings gets a policy of
    its own.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    definitions: dict[str, dict[str, Value]] = {}
    for queue in sorted(settings):
        if settings[queue] and not _is_own(settings[queue]):
            definition = {key: settings[queue][key] for key in sorted(settings[queue])}
            name = name_of(definition)
            groups[name].append(queue)
            definitions[name] = definition
    own = tuple(
        Policy(
            name=PREFIX + queue,
            pattern=f"^{escape(queue)}$",
            definition={key: settings[queue][key] for key in sorted(settings[queue])},
            priority=priority,
        )
        for queue in sorted(settings)
        if _is_own(settings[queue])
    )
    return own + tuple(
        Policy(
            name=name if part == 1 else f"{name}.{part}",
            pattern=pattern,
            definition=definitions[name],
            priority=priority,
        )
        for name in sorted(groups)
        for part, pattern in enumerate(patterns(groups[name], pattern_bytes_max), start=1)
    )


def _is_own(settings: Mapping[str, Value]) -> bool:
    return "dead-letter-exchange" in settings


def protection(queues: Iterable[Queue]) -> tuple[Policy, ...]:
    """Return the policies that keep a user's catch-all away from all queues but the active ones.

    A queue has one policy at a time. These policies repeat the queues' arguments. Only the bridge
    has queues with such names, so one pattern is exact for all of them. It covers queues of later,
    too: buckets, and with the bridge the bridges' own queues. If a catch-all dropped a bridge's
    request while another bridge is busy, a settlement would fail.
    """
    inner = "|".join(map(escape, (INBOX_SUFFIX, DEFERRED_SUFFIX, SESSIONS_SUFFIX)))
    buckets = escape(BUCKETS_SUFFIX) + ".+"
    unlimited: dict[str, Value] = {"delivery-limit": DELIVERY_LIMIT_MAX}
    default: dict[str, Value] = {"overflow": "drop-head"}  # of no effect without a length
    kept: dict[str, tuple[str, dict[str, Value]]] = {
        "dead-letters": (rf"^.+{escape(DEAD_LETTER_SUFFIX)}$", unlimited),
        "bridges": (f"^{escape(BRIDGE_QUEUES)}", default),
        "inner": (rf"^(?:.+(?:{inner}|{buckets})|{escape(EXPIRED_UNNUMBERED)})$", unlimited),
        "histories": (rf"^.+{escape(HISTORY_SUFFIX)}$", {"max-length-bytes": HISTORY_BYTES_MAX}),
        "journals": (
            rf"^.+(?:{escape(JOURNAL_SUFFIX)}|{escape(MOVED_SUFFIX)})$",
            {"max-length-bytes": JOURNAL_BYTES_MAX},
        ),
        "settled": (rf"^.+{escape(SETTLED_SUFFIX)}$", {"max-length-bytes": SETTLED_BYTES_MAX}),
        "sink": (f"^{escape(SINK)}$", {"max-length": 0}),
    }
    there = [queue.name for queue in queues]
    if EXPIRED_UNNUMBERED in there:
        # Bridges declare their own queues when they start, and `$settled` streams at first peeks.
        there += [BRIDGE_QUEUES, "x" + SETTLED_SUFFIX]
    return tuple(
        Policy(name=PREFIX + name, pattern=pattern, definition=given, priority=PROTECTED_PRIORITY)
        for name, (pattern, given) in kept.items()
        if any(re.search(pattern, queue) for queue in there)
    )


def raised_bound(entity: str, size_bytes: int) -> Policy:
    """Return the policy that raises the size bound of one entity's journal."""
    return Policy(
        name=RAISED_PREFIX + entity,
        pattern=f"^{escape(journal(entity))}$",
        definition={"max-length-bytes": size_bytes},
        priority=PROTECTED_PRIORITY + 1,
    )


def name_of(definition: Mapping[str, Value]) -> str:
    """Return the name of a shared policy, which lists the policy's settings."""
    settings = (f"{_SHORT.get(key, key)}-{definition[key]}" for key in sorted(definition))
    return PREFIX + ".".join(settings)


def patterns(names: Sequence[str], bytes_max: int = PATTERN_BYTES_MAX) -> list[str]:
    """Return few anchored patterns, of `bytes_max` bytes at most, that match exactly `names`.

    Raises:
        ValueError: a single name is longer than a pattern may be.
    """
    left = sorted(set(names))
    listed = _listed(left)
    if len(listed) <= bytes_max:
        return [listed] if left else []
    found = []
    while left:
        count = _longest_run(left, bytes_max)
        if not count:
            raise ValueError(f"The name {left[0]!r} does not fit into {bytes_max} bytes.")
        listed = _listed(left[:count])
        found.append(listed if len(listed) <= bytes_max else _packed(left[:count]))
        left = left[count:]
    return found


def _longest_run(names: Sequence[str], bytes_max: int) -> int:
    """Return how many of the first names fit into one packed pattern."""
    low, high = 0, 1
    while high <= len(names) and len(_packed(names[:high])) <= bytes_max:
        low, high = high, high * 2
    high = min(high, len(names) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if len(_packed(names[:middle])) <= bytes_max:
            low = middle
        else:
            high = middle
    return low


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"^{escape(names[0])}$"
    return "^(?:" + "|".join(map(escape, names)) + ")$"


def _packed(names: Sequence[str]) -> str:
    """Return one pattern that writes common prefixes once; `names` are sorted."""
    return "^" + _branches([name for name in names if name], "" in names) + "$"


def _branches(names: Sequence[str], may_end: bool) -> str:
    if not names:
        return ""
    common = commonprefix(names)  # noqa: RUF071 - of characters, not of paths
    if common and not may_end:
        rest = [name[len(common) :] for name in names]
        return escape(common) + _branches([r for r in rest if r], "" in rest)
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[name[0]].append(name)
    endings = [first for first, group in groups.items() if group == [first]]
    alternatives = [_branches(g, False) for first, g in groups.items() if first not in endings]
    if endings:
        alternatives.insert(0, _one_of(endings))
    if len(alternatives) == 1 and not may_end:
        return alternatives[0]
    is_one_unit = len(alternatives) == 1 and len(groups) == len(endings)
    group_text = alternatives[0] if is_one_unit else "(?:" + "|".join(alternatives) + ")"
    return group_text + ("?" if may_end else "")


def _one_of(chars: Sequence[str]) -> str:
    if len(chars) == 1:
        return escape(chars[0])
    body = "".join("\\" + char if char in "\\]^-[" else char for char in chars)
    return f"[{body}]"


def ceiling_policies(ceiling: Ceiling, *, priority: int = PRIORITY) -> tuple[Policy, ...]:
    """Return the operator policy that keeps every entity's queue below a ceiling.

    RabbitMQ takes the smaller value of policy and operator policy. The pattern matches every queue
    without a `$` in its name: the entities' queues, later ones too, and a user's own queues. It
    does not match the bridge's inner queues (a scheduled message may wait longer than the ceiling).
    """
    definition: dict[str, Value] = {}
    if ceiling.size_bytes is not None:
        definition["max-length-bytes"] = ceiling.size_bytes
    if ceiling.time_to_live_ms is not None and ceiling.time_to_live_ms <= TTL_MAX_MS:
        definition["message-ttl"] = ceiling.time_to_live_ms
    if not definition:
        return ()
    return (
        Policy(
            name=PREFIX + "ceiling",
            pattern=r"^(?:\$amq\.)?[^$]+$",
            definition=definition,
            priority=priority,
            is_operator=True,
        ),
    )


def free_priority(queues: Iterable[str], foreign: Iterable[Policy], wanted: int = PRIORITY) -> int:
    """Return the lowest priority from `wanted` on at which no foreign policy ties with ours.

    When two policies of one priority match a queue, RabbitMQ applies either.
    """
    names = list(queues)
    taken = {
        policy.priority
        for policy in foreign
        if not policy.is_operator and any(matches(policy, name) for name in names)
    }
    while wanted in taken:
        wanted += 1
    return wanted
