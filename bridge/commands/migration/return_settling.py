"""Settles messages at the source of a migration by their numbers, and sends some to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from bridge.commands.clock import now_ms
from bridge.commands.copies import EveryNumber
from bridge.commands.errors import sentence_of
from bridge.commands.output import Progress
from bridge.commands.taking_run import Judged, TakingRun
from bridge.commands.taking_sources import ReceiverSource, source_of
from bridge.operations.changes import MessageChanges, scheduled, sent_again
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.operations.migration.copy_effects import (
    CopyDone,
    CopyPlace,
    CopyRefused,
    CopyUnanswered,
)
from bridge.operations.migration.return_effects import (
    BROUGHT,
    ReturnMessage,
    SettleAtSource,
    SettledAs,
)
from bridge.operations.selection import MessageSelection
from bridge.operations.taking_rules import TakingRules
from bridge.relay.machine.effects import Accepted, Failed, Refused
from bridge.relay.plan.source_identity import source_name
from bridge.relay.running.judgement import number_of
from bridge.relay.running.outlet import OVERHEAD, Outlet
from bridge.relay.running.session_lock import CANNOT_BE_LOCKED, SessionLock
from bridge.remote import outcomes
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteNotFound
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace

WAIT_S: Final = 3.0
"""For how long no message must come until there are no more."""

HOLD: Final = 10_000
"""Messages that stay, and may stand in front of those that are settled."""

SUBSCRIPTIONS: Final = "/Subscriptions/"


def outcome_of(how: SettledAs, dead: RemoteMessage | None) -> outcomes.RemoteOutcome:
    """Return how a message is settled; one that is dead-lettered says what the target's says."""
    if how is SettledAs.COMPLETED:
        return outcomes.Complete()
    if how is SettledAs.DEFERRED:
        return outcomes.Defer()
    reason = None if dead is None else dead.dead_letter_reason
    description = None if dead is None else dead.dead_letter_error_description
    return outcomes.DeadLetter(
        reason if isinstance(reason, str) else None,
        description if isinstance(description, str) else None,
    )


async def settle(
    namespace: RemoteNamespace, place: CopyPlace, effect: SettleAtSource, asked: asyncio.Event
) -> None:
    """Lock messages, and settle them; what cannot be had now stays as it is.

    Args:
        place: where they are.
        asked: somebody stops it.

    Raises:
        RemoteError: the namespace refuses for good, or does not answer.
    """
    wanted = {number: outcome_of(effect.how, dead) for number, dead in effect.messages}
    try:
        if effect.session_id is not None:
            await _settle_in_session(namespace, place.path, effect, wanted, asked)
        elif effect.is_deferred:
            await _settle_deferred(namespace, place.path, wanted, None)
        else:
            await _settle_received(namespace, place.path, wanted, asked)
    except RemoteError as error:
        if not (error.retryable or error.in_doubt):
            raise


async def _settle_received(
    namespace: RemoteNamespace,
    path: str,
    wanted: Mapping[int, outcomes.RemoteOutcome],
    asked: asyncio.Event,
) -> None:
    management = await namespace.management(path)
    receiver = await namespace.receiver(path)
    source = await source_of(management, receiver, MessageSelection(numbers=frozenset(wanted)))
    run = TakingRun(
        source,
        management,
        _rules(wanted),
        _Judging(wanted).judge,
        wait_s=WAIT_S,
        progress=Progress(None),
    )
    try:
        await run.run(asked)
    finally:
        with suppress(RemoteError):
            await source.close()


async def _settle_in_session(
    namespace: RemoteNamespace,
    path: str,
    effect: SettleAtSource,
    wanted: Mapping[int, outcomes.RemoteOutcome],
    asked: asyncio.Event,
) -> None:
    try:
        receiver = await namespace.session_receiver(path, effect.session_id)
    except RemoteError as error:
        if error.condition != CANNOT_BE_LOCKED:
            raise
        return
    lock = SessionLock(receiver, now_ms, lambda _: None)
    try:
        if effect.is_deferred:
            await _settle_deferred(namespace, path, wanted, receiver.session_id)
            return
        run = TakingRun(
            ReceiverSource(receiver),
            await namespace.management(path),
            _rules(wanted),
            _Judging(wanted).judge,
            wait_s=WAIT_S,
            progress=Progress(None),
            lock=lock,
        )
        await run.run(asked)
    finally:
        with suppress(RemoteError):
            await lock.release()


async def _settle_deferred(
    namespace: RemoteNamespace,
    path: str,
    wanted: Mapping[int, outcomes.RemoteOutcome],
    session_id: str | None,
) -> None:
    """Receive deferred messages by number, one by one: one that is not there stops no other."""
    management = await namespace.management(path)
    for number, outcome in wanted.items():
        with suppress(RemoteNotFound, RemoteLockLost):
            (delivery,) = await management.receive_deferred([number], "peek-lock", session_id)
            assert delivery.lock_token is not None
            await management.settle_deferred([delivery.lock_token], outcome, session_id)


def _rules(wanted: Mapping[int, outcomes.RemoteOutcome]) -> TakingRules:
    return TakingRules(is_moving=False, limit=len(wanted), hold=HOLD)


class _Judging:
    def __init__(self, wanted: Mapping[int, outcomes.RemoteOutcome]) -> None:
        self._wanted = wanted

    async def judge(self, delivery: RemoteDelivery) -> Judged:
        outcome = self._wanted.get(number_of(delivery))
        return Judged(False) if outcome is None else Judged(True, outcome=outcome)


class Bringing:
    """Sends messages of the target's place to the source; a busbridge numbers none of them twice.

    Args:
        source: the namespace that gets them.
        target: the name of the namespace that they come from.
    """

    def __init__(self, source: RemoteNamespace, target: str, place: CopyPlace) -> None:
        path = place.path.removesuffix("/$DeadLetterQueue")
        entity, _, only = path.partition(SUBSCRIPTIONS)
        self._place = place
        name = source_name(target, place.path)
        self._outlet = Outlet(source, entity, name, EveryNumber(), only or None)
        self._is_open = False

    async def send(
        self, messages: Sequence[tuple[ReturnMessage, str]]
    ) -> CopyDone | CopyUnanswered | CopyRefused:
        """Send messages in their order, each with what it was at the target."""
        if not self._is_open:
            try:
                await self._outlet.open()
            except RemoteError as error:
                if error.retryable:
                    return CopyUnanswered()
                return CopyRefused(f"messages cannot be sent to the source: {sentence_of(error)}")
            self._is_open = True
        batch: list[tuple[RemoteMessage, int, int]] = []
        size_bytes, group = 0, None
        for message, text in messages:
            try:
                copy = self._copy(message, text)
            except ValueRefused as error:
                return CopyRefused(f"message {message.number} cannot be sent: {error}.")
            size = copy.size_bytes + OVERHEAD
            of_copy = copy.session_id, copy.partition_key, message.due_ms is None
            is_full = size_bytes + size > self._outlet.batch_bytes_max
            if batch and (is_full or of_copy != group):
                if not isinstance(answer := await self._send(batch), CopyDone):
                    return answer
                batch, size_bytes = [], 0
            batch.append((copy, message.number, message.enqueued_ms))
            size_bytes, group = size_bytes + size, of_copy
        return await self._send(batch)

    def _copy(self, message: ReturnMessage, text: str) -> RemoteMessage:
        changes = MessageChanges(properties={BROUGHT: text}, keeps_death=not self._place.is_dead)
        copy = sent_again(message.message, now_ms(), changes)
        return copy if message.due_ms is None else scheduled(copy, message.due_ms)

    async def _send(
        self, batch: Sequence[tuple[RemoteMessage, int, int]]
    ) -> CopyDone | CopyUnanswered | CopyRefused:
        match await self._outlet.send(batch):
            case Accepted():
                return CopyDone()
            case Refused(condition, description):
                if len(batch) == 1:
                    return CopyRefused(
                        f"the source refuses message {batch[0][1]}: {description} ({condition})"
                    )
                for each in batch:
                    if not isinstance(answer := await self._send([each]), CopyDone):
                        return answer
                return CopyDone()
            case Failed(cause=cause, is_of_rights=True):
                return CopyRefused(f"messages cannot be sent to the source: {cause}")
        return CopyUnanswered()

    async def close(self) -> None:
        """Detach the sender."""
        await self._outlet.close()
