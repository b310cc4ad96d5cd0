"""Entities whose messages nobody numbers: what health says of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime

LEADERLESS_MS = 2_000
"""How long an entity may have no leader before the bridge reports that it is not ready."""

LEADERLESS_NAMED = 5
"""Maximum number of entities that the report names; there may be thousands."""

TOLD_S = 30.0
"""How long a failure is reported after the last failed term."""


def leaderless_reason(
    leaderless: Mapping[str, int], silent: Container[str], now_ms: int
) -> str | None:
    """Return the sentence about entities without a leader; `None` when there are none.

    Args:
        leaderless: the entities, and since when (UTC ms), the longest first.
        silent: those with a queue that gives no answer. They are warnings elsewhere: another bridge
            could do no better.
    """
    late = {
        name: since_ms
        for name, since_ms in leaderless.items()
        if now_ms - since_ms > LEADERLESS_MS and name not in silent
    }
    if not late:
        return None
    named = ", ".join(
        f"{name!r} (since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ})"
        for name, since_ms in list(late.items())[:LEADERLESS_NAMED]
    )
    rest = f" and {len(late) - LEADERLESS_NAMED} more" if len(late) > LEADERLESS_NAMED else ""
    return f"Nobody numbers what is sent to {named}{rest}; it waits."


def failing_reasons(
    failing: Mapping[str, tuple[float, str]], silent: Container[str], now_s: float
) -> list[str]:
    """Return a sentence for each entity whose terms fail again and again.

    Args:
        failing: the entities, with the time (s) and the error of the last failed term.
        silent: those with a queue that gives no answer.
    """
    return [
        f"The sequencer of {name!r} fails again and again; what is sent waits for its number: "
        f"{error}."
        for name, (at_s, error) in failing.items()
        if now_s - at_s < TOLD_S and name not in silent
    ]
