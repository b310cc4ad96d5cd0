"""The plan of a migration: what there is, what stands against it, the steps, the time it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bridge.model import entity as model
from bridge.model.duration import format_duration, instant_text, is_forever
from bridge.operations.count_text import be
from bridge.operations.count_text import counted as counted_text
from bridge.operations.migration import order
from bridge.operations.migration.closed_source import refused_copy
from bridge.operations.migration.comparison import compared
from bridge.operations.migration.copy_time import CopyTime, copy_time
from bridge.operations.migration.findings import FINDING_LEVELS, FindingLevel, MigrationFinding
from bridge.operations.migration.held_target import TargetHold, target_findings
from bridge.operations.migration.renumbered_message import unsayable_text
from bridge.operations.migration.sizes import largest_findings, size_findings
from bridge.operations.migration.state_counts import COPIED_STATES, StateCounts
from bridge.topology.definitions import entities
from bridge.topology.parts import DEFERRED_MAX, SESSION_STATE_BYTES_MAX, SESSION_STATES_MAX

GENERAL = (
    MigrationFinding(
        level="loss",
        entity="",
        subject="access",
        text="the namespace's own access rules, roles of Microsoft Entra ID, network rules and "
        "tags are not in the administration API: make them at the target by hand.",
    ),
    MigrationFinding(
        level="loss",
        entity="",
        subject="locks",
        text="locks of messages and of sessions end: what is received and not settled is copied "
        "as active.",
    ),
)
"""What holds for every migration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSide:
    """A namespace as it was read.

    Attributes:
        tier: its tier.
        namespace: the entities whose definitions the model takes, subscriptions with their rules.
        counted: their messages, by the path in lower case.
        refused: what the model does not take, by path, and why.
    """

    tier: model.Tier
    namespace: model.Namespace
    counted: Mapping[str, StateCounts] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def of(self, path: str) -> StateCounts:
        """Return the messages of an entity; none for one that was not read."""
        return self.counted.get(path.lower(), StateCounts())

    def by_path(self) -> dict[str, model.Entity]:
        """Return all entities, by the path in lower case."""
        return {each.path.lower(): each for each in entities(self.namespace)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEntity:
    """An entity of the source that is part of the migration.

    Attributes:
        fate: "new", "changed" or "same" at the target; "refused" if something stands against it.
    """

    path: str
    kind: str
    fate: Literal["new", "changed", "same", "refused"]
    counted: StateCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStep:
    """A step; the steps are taken in order.

    Attributes:
        entity: the path that it is about; "" for the whole namespace.
    """

    what: Literal["stop", "drain", "define", "copy", "compare", "start"]
    entity: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """What a migration takes.

    Attributes:
        findings: refusals first.
    """

    entities: tuple[PlannedEntity, ...]
    findings: tuple[MigrationFinding, ...]
    steps: tuple[MigrationStep, ...]
    time: CopyTime

    def count(self, level: FindingLevel) -> int:
        """Return the number of findings of a level."""
        return sum(each.level == level for each in self.findings)


def make(
    source: MigrationSide,
    target: MigrationSide,
    chosen: Collection[str],
    *,
    now_ms: int,
    denied: Mapping[str, str] | None = None,
    requests: int = 0,
    measured_per_s: float | None = None,
    unfit: str = "",
    renumbers: bool = False,
    holds: Mapping[str, TargetHold] | None = None,
) -> MigrationPlan:
    """Return the plan.

    Args:
        source: the whole namespace: forwarding leads out of what is chosen.
        target: what is there of the same names; a bridge's bounds are its own.
        chosen: the paths that are part of it, in lower case; a topic's subscriptions count by their
            own paths.
        now_ms: the time (UTC ms).
        denied: the entities of the source that may not be peeked at, and what it says.
        requests, measured_per_s: see `copy_time`.
        unfit: why the target cannot be one at all; "" if it can.
        renumbers: messages get new numbers at the target, beside its own.
        holds: the entities of the target that somebody holds, by the path in lower case.
    """
    part = [each for each in entities(source.namespace) if each.path.lower() in chosen]
    time = copy_time(
        [source.of(each.path) for each in part],
        source.tier,
        requests=requests,
        measured_per_s=measured_per_s,
    )
    ends_ms = now_ms + 1_000 * (time.least_s or 0)
    found = list(_findings(source, target, part, now_ms, ends_ms, holds or {}, renumbers=renumbers))
    if unfit:
        found.append(MigrationFinding(level="refusal", entity="", subject="target", text=unfit))
    found += [
        MigrationFinding(level="refusal", entity=path, subject="definition", text=why)
        for path, why in source.refused.items()
        if path.lower() in chosen
    ]
    found += [
        MigrationFinding(level="refusal", entity=path, subject="peek", text=why)
        for path, why in (denied or {}).items()
        if (path, "Status") not in {(each.entity, each.subject) for each in found}
    ]
    found.sort(key=lambda each: (FINDING_LEVELS.index(each.level), each.entity.lower()))
    there = target.by_path()
    planned = tuple(
        PlannedEntity(
            path=each.path,
            kind=type(each).__name__.lower(),
            fate=_fate(each, there.get(each.path.lower()), found),
            counted=source.of(each.path),
        )
        for each in part
    )
    return MigrationPlan(
        entities=planned,
        findings=(*found, *GENERAL),
        steps=tuple(_steps(source, part, planned, time)),
        time=time,
    )


def _fate(
    entity: model.Entity, there: model.Entity | None, found: list[MigrationFinding]
) -> Literal["new", "changed", "same", "refused"]:
    levels = {each.level for each in found if each.entity == entity.path}
    if "refusal" in levels:
        return "refused"
    if there is None:
        return "new"
    return "changed" if "change" in levels else "same"


def _findings(
    source: MigrationSide,
    target: MigrationSide,
    part: list[model.Entity],
    now_ms: int,
    ends_ms: int,
    holds: Mapping[str, TargetHold],
    *,
    renumbers: bool,
) -> Iterator[MigrationFinding]:
    there = target.by_path()
    names = {each.name.lower() for each in part if not isinstance(each, model.Subscription)}
    names |= {path for path, each in there.items() if not isinstance(each, model.Subscription)}
    circles = set(order.circles(source.namespace))
    fronts = source.by_path()
    for entity in part:
        other = there.get(entity.path.lower())
        yield from compared(entity, other, source.tier, target.tier)
        if isinstance(entity, model.Subscription) and entity.topic.lower() not in names:
            text = f"the target has no topic {entity.topic!r}, and it is not part of this: name it."
            yield _found("refusal", entity, "topic", text)
        yield from _of_definition(entity, names, circles)
        counted = source.of(entity.path)
        if closed := refused_copy(entity, counted):
            yield _found("refusal", entity, "Status", closed)
        held = target.of(entity.path) if other is not None else StateCounts()
        hold = holds.get(entity.path.lower())
        yield from target_findings(entity, held, hold, renumbers=renumbers)
        kept = held if renumbers else StateCounts()
        yield from _of_messages(entity, other, counted, kept, target.tier, now_ms, ends_ms)
        yield from largest_findings(entity, counted, fronts, there, target.tier)


def _found(level: FindingLevel, entity: model.Entity, subject: str, text: str) -> MigrationFinding:
    return MigrationFinding(level=level, entity=entity.path, subject=subject, text=text)


def _of_definition(
    entity: model.Entity, names: Collection[str], circles: Collection[str]
) -> Iterator[MigrationFinding]:
    """Yield what an entity's own definition means for its migration."""
    if not isinstance(entity, model.Topic):
        for subject, name in (
            ("ForwardTo", entity.forward_to),
            ("ForwardDeadLetteredMessagesTo", entity.forward_dead_lettered_messages_to),
        ):
            if name and name.lower() not in names:
                text = f"the target has no {name!r}, and it is not part of this: name it, too."
                yield _found("refusal", entity, subject, text)
        if entity.path in circles:
            text = "what it forwards can come back to it: nothing empties it by itself."
            yield _found("note", entity, "ForwardTo", text)
        if entity.requires_session:
            text = (
                f"a state of a session of more than {SESSION_STATE_BYTES_MAX:,} bytes is not "
                "taken; how large they are is not looked at: that would lock the sessions."
            )
            yield _found("note", entity, "sessions", text)
    if not isinstance(entity, model.Subscription) and entity.requires_duplicate_detection:
        open_for = format_duration(entity.duplicate_detection_history_time_window_ms)
        text = (
            f"ids of messages that were received already are not told: what is sent again at the "
            f"target within {open_for} is no duplicate there."
        )
        yield _found("loss", entity, "RequiresDuplicateDetection", text)
    if not is_forever(entity.auto_delete_on_idle_ms):
        idle = format_duration(entity.auto_delete_on_idle_ms)
        text = (
            f"unused for {idle} it is deleted, at the source and at the target, with what is in it."
        )
        yield _found("note", entity, "AutoDeleteOnIdle", text)


def _of_messages(
    entity: model.Entity,
    there: model.Entity | None,
    counted: StateCounts,
    kept: StateCounts,
    tier: model.Tier,
    now_ms: int,
    ends_ms: int,
) -> Iterator[MigrationFinding]:
    """Yield what an entity's messages meet at the target.

    Args:
        kept: the target's own messages that stay.
        tier: the target's.
    """
    if dead := counted.transfer_dead_letter:
        text = (
            f"{counted_text(dead, 'message')} {be(dead)} in $Transfer/$DeadLetterQueue, which "
            "is not copied: receive them first."
        )
        yield _found("refusal", entity, "transfer dead letters", text)
    if counted.deferred + kept.deferred > DEFERRED_MAX:
        others = f", {kept.deferred:,} more at the target" if kept.deferred else ""
        text = (
            f"{counted.deferred:,} are deferred{others}, and a bridge holds {DEFERRED_MAX:,} of an "
            f"entity: receive {counted.deferred + kept.deferred - DEFERRED_MAX:,} of them first."
        )
        yield _found("refusal", entity, "deferred messages", text)
    elif not counted.is_peeked and counted.total > DEFERRED_MAX:
        text = (
            f"a bridge holds {DEFERRED_MAX:,} of an entity, and a namespace may count them as "
            "active: --peek counts them."
        )
        yield _found("note", entity, "deferred messages", text)
    most = _states_max(entity, there)
    if counted.session_states is not None and counted.session_states > most:
        text = (
            f"{counted.session_states:,} sessions have a state, and a bridge holds {most:,} states "
            f"of this entity: clear {counted.session_states - most:,} of them first."
        )
        yield _found("refusal", entity, "sessions", text)
    if counted.unread:
        text = f"{counted.unread:,} cannot be read: receive them first."
        yield _found("refusal", entity, "messages", text)
    if counted.unsayable is not None:
        yield _found(
            "refusal", entity, "application properties", unsayable_text(*counted.unsayable)
        )
    if scheduled := counted.counts.get("scheduled", 0):
        them = "it" if scheduled == 1 else "them"
        text = (
            f"{scheduled:,} {be(scheduled)} cancelled at the source by the run: the target alone "
            f"has {them}."
        )
        yield _found("note", entity, "cancelled messages", text)
    if counted.first_due_ms is not None and counted.first_due_ms <= ends_ms:
        due = instant_text(max(counted.first_due_ms, now_ms))
        text = f"the first is due at {due}, before the copy would be done: the source activates it."
        yield _found("note", entity, "scheduled messages", text)
    if not isinstance(entity, model.Subscription):
        yield from size_findings(entity, there, counted, kept, tier)


def _states_max(entity: model.Entity, there: model.Entity | None) -> int:
    """Return the number of session states that a bridge holds of an entity."""
    if isinstance(there, model.Queue | model.Subscription):
        return SESSION_STATES_MAX * there.session_shards
    return SESSION_STATES_MAX * model.SESSION_SHARDS_DEFAULT


def _steps(
    source: MigrationSide,
    part: list[model.Entity],
    planned: tuple[PlannedEntity, ...],
    time: CopyTime,
) -> Iterator[MigrationStep]:
    yield MigrationStep(what="stop", entity="", text="stop all that sends and receives.")
    chosen = {each.path.lower() for each in part}
    for each in order.forwarding(source.namespace):
        if each.path.lower() in chosen:
            yield MigrationStep(what="drain", entity=each.path, text=_drained(each, source))
    new = sum(each.fate == "new" for each in planned)
    changed = sum(each.fate == "changed" for each in planned)
    yield MigrationStep(
        what="define",
        entity="",
        text=f"at the target: {new:,} to make, {changed:,} to change, "
        f"{len(planned) - new - changed:,} as they are.",
    )
    for unit in order.copied(source.namespace):
        below = unit.subscriptions if isinstance(unit, model.Topic) else ()
        counted = [source.of(each.path) for each in (unit, *below) if each.path.lower() in chosen]
        if total := sum(each.total for each in counted):
            yield MigrationStep(
                what="copy", entity=unit.name, text=_copied(counted, total, len(below))
            )
    yield MigrationStep(
        what="compare",
        entity="",
        text=f"read the {counted_text(time.messages, 'message')} once more: none may have come, "
        "gone or changed.",
    )
    yield MigrationStep(
        what="start", entity="", text="start what receives, then what sends, at the target."
    )


def _drained(each: order.ForwardingEntity, source: MigrationSide) -> str:
    counted = source.of(each.path)
    parts = []
    if each.messages_to:
        waiting = counted.counts.get("active", 0) + counted.transfer
        go = "goes" if waiting == 1 else "go"
        parts.append(f"{counted_text(waiting, 'message')} {go} to {each.messages_to}")
    if each.dead_letters_to:
        dead = counted.counts.get("dead_letter", 0)
        go = "goes" if dead == 1 else "go"
        parts.append(f"{counted_text(dead, 'dead letter')} {go} to {each.dead_letters_to}")
    return f"{'; '.join(parts)}: wait until they have."


_WORDS = {"dead_letter": "dead-lettered", "deferred_dead_letter": "dead-lettered and deferred"}


def _copied(counted: list[StateCounts], total: int, subscriptions: int) -> str:
    by_state = Counter[str]()
    for each in counted:
        by_state.update(each.counts)
    shown = ", ".join(
        f"{by_state[state]:,} {_WORDS.get(state, state)}"
        for state in COPIED_STATES
        if by_state[state]
    )
    together = f", {subscriptions:,} subscriptions together" if subscriptions > 1 else ""
    return f"{counted_text(total, 'message')} ({shown}){together}."
