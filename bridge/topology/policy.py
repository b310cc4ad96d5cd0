"""Policies of the bridge: which one is in force on a queue, and those that are not lists of queues.

RabbitMQ applies one policy to a queue, the matching one of the highest priority. `sharing` has the
policies that list queues of equal settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bridge.model.errors import ArgumentError
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, TTL_MAX_MS
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
    TRANSFER_SUFFIX,
    journal,
)
from bridge.topology.parts import HISTORY_BYTES_MAX, JOURNAL_BYTES_MAX, SETTLED_BYTES_MAX
from bridge.topology.patterns import escape
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

_SCOPE_OF_TYPE = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Limits of every queue of a virtual host, the bridge's or not. None: no limit.

    Raises:
        ArgumentError: a limit is 0 or negative, so that no message could stay.
    """

    time_to_live_ms: int | None = None
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        for what, given in (("TTL", self.time_to_live_ms), ("size", self.size_bytes)):
            if given is not None and given <= 0:
                raise ArgumentError(f"A ceiling of {given} for the {what} leaves no message alive.")


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


def protection(queues: Iterable[Queue]) -> tuple[Policy, ...]:
    """Return the policies that keep a user's catch-all away from all queues but the active ones.

    A queue has one policy at a time. These policies repeat the queues' arguments. Only the bridge
    has queues with such names, so one pattern is exact for all of them. It covers queues of later,
    too: buckets, and with the bridge the bridges' own queues. If a catch-all dropped a bridge's
    request while another bridge is busy, a settlement would fail.
    """
    inner = "|".join(map(escape, (INBOX_SUFFIX, DEFERRED_SUFFIX, SESSIONS_SUFFIX, TRANSFER_SUFFIX)))
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


def free_priority(
    queues: Iterable[str], foreign: Iterable[Policy], wanted: int = PRIORITY, *, count: int = 1
) -> int:
    """Return the lowest priority from `wanted` on at which no foreign policy ties with ours.

    When two policies of one priority match a queue, RabbitMQ applies either.

    Args:
        count: how many priorities ours have: that one, and the ones below it.
    """
    names = list(queues)
    taken = {
        policy.priority
        for policy in foreign
        if not policy.is_operator and any(matches(policy, name) for name in names)
    }
    while not taken.isdisjoint(range(wanted - count + 1, wanted + 1)):
        wanted += 1
    return wanted
