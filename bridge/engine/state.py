"""The engine's health: whether it can serve, and a sentence for each reason why it cannot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.engine.administration.unmet_settings import UnmetSettings
from bridge.engine.clock import now_ms
from bridge.engine.held_entities import HeldEntities
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.services import Services
from bridge.engine.sessions.accepting import Accepting
from bridge.machine.suspects import Suspect
from bridge.topology.lacking import Lack, in_words
from bridge.topology.policy import PREFIX, winners
from bridge.topology.resources import Policy, Queue

log = logging.getLogger(__name__)

MADE_AGAIN_MS = 600_000
"""How long health names a resource that was made again."""


class MadeAgain:
    """Resources and policies that were missing, and were made again within `MADE_AGAIN_MS`."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[int, str]] = {}

    def note(self, name: str, why: str = "deleted or changed by hand") -> None:
        """Note that a resource or policy is made again; its name is in words."""
        self._noted[name] = now_ms(), why

    def note_queue(self, queue: Queue) -> None:
        """Note that a queue is made again."""
        self.note(in_words(queue))

    @property
    def sentences(self) -> list[str]:
        """A sentence for each of them."""
        since_ms = now_ms() - MADE_AGAIN_MS
        self._noted = {name: each for name, each in self._noted.items() if each[0] > since_ms}
        return [
            f"RabbitMQ had lost {name}, {why}; the bridge made it again at "
            f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}."
            for name, (at_ms, why) in self._noted.items()
        ]


class Health:
    """The engine's health.

    Attributes:
        management: the management API's error at the last attempt, else `None`.
        findings: a sentence for each foreign policy that overrides the bridge's.
        conflicts: a sentence for each resource that is there with other settings.
        made_again: the resources and policies that were made again.
    """

    def __init__(
        self,
        services: Services,
        receiving: Receiving,
        sessions: Accepting,
        unmet: UnmetSettings,
        held: HeldEntities,
        made_again: MadeAgain,
    ) -> None:
        self.made_again = made_again
        self._unmet = unmet
        self._held = held
        self._sender = services.sender
        self._connections = services.connections
        self._receiving = receiving
        self._locks = services.locks
        self._sessions = sessions
        self.management: str | None = None
        self.findings: Sequence[str] = ()
        self._alarms: Sequence[str] = ()
        self._alarm = ""
        services.sender.on_blocked = self._note_alarm
        self.conflicts: Sequence[str] = ()
        self._refused: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Health(reasons={self.reasons!r})"

    @property
    def is_ready(self) -> bool:
        """Whether the engine can serve: there is no reason against it."""
        return not self.reasons

    @property
    def locks(self) -> int:
        """The count of locked messages."""
        return len(self._locks)

    @property
    def buffered(self) -> int:
        """The count of messages that wait in this process for the next receiver."""
        return self._receiving.buffered

    @property
    def warnings(self) -> list[str]:
        """A sentence for each fault of a single entity."""
        silent = [each.sentence for each in self.silent]
        there = [*self.conflicts, *self._refused.values(), *self._unmet.sentences]
        there += self._held.sentences
        return [*silent, *self._sessions.natives, *there, *self.made_again.sentences]

    @property
    def alarm(self) -> str:
        """RabbitMQ's alarms in words; "" when there is none."""
        # RabbitMQ tells a connection of an alarm only when that publishes.
        return self._sender.blocked or ", ".join(self._alarms)

    def note_alarms(self, alarms: Sequence[str]) -> None:
        """Note RabbitMQ's alarms by its management API, such as `disk on rabbit@a`."""
        self._alarms = alarms
        self._note_alarm()

    def _note_alarm(self) -> None:
        """Log an alarm's begin and end, told by a connection or by the management API."""
        before, self._alarm = self._alarm, self.alarm
        if self._alarm and not before:
            log.warning("rabbitmq.alarm_begins alarm=%r", self._alarm)
        elif before and not self._alarm:
            log.warning("rabbitmq.alarm_ends alarm=%r", before)

    def note_conflicts(self, conflicts: Sequence[Lack]) -> None:
        """Name the resources that are there with other unchangeable settings, and only these."""
        self.conflicts = [
            f"RabbitMQ has {each.name} with other settings than the bridge's, which stay: "
            f"{each.conflict}."
            for each in conflicts
        ]

    def note_refused(self, path: str, error: BrokerError | None) -> None:
        """Name an entity whose resources RabbitMQ refuses to make, until there is no error."""
        self._refused.pop(path.lower(), None)
        if error is not None:
            self._refused[path.lower()] = (
                f"RabbitMQ refuses to make a resource of {path!r}, which is tried again: {error}."
            )

    @property
    def silent(self) -> list[Suspect]:
        """The queues and exchanges for which RabbitMQ gives no answer; all others work."""
        text = "it confirms nothing that is published there"
        unconfirmed = self._sender.silent.items()
        return [
            *self._connections.pool.suspects.silent,
            *(Suspect(target, since_ms, text) for target, since_ms in unconfirmed),
        ]

    @property
    def reasons(self) -> list[str]:
        """A sentence for each reason why the engine cannot serve; empty when it can."""
        found = []
        if self._sender.lost is not None:
            found.append(f"There is no connection for publishing to RabbitMQ: {self._sender.lost}.")
        if self._connections.lost is not None:
            found.append(
                f"There is no connection for consuming to RabbitMQ: {self._connections.lost}."
            )
        if self.alarm:
            found.append(
                f"RabbitMQ has an alarm and takes no messages: {self.alarm}. Sends are answered "
                "with server-busy, settlement goes on."
            )
        if self.management is not None:
            found.append(f"RabbitMQ's management API cannot be used: {self.management}.")
        return found + list(self.findings)


async def policy_reasons(queues: Iterable[Queue], management: Management) -> list[str]:
    """Return a sentence for each foreign policy that overrides the bridge's on some of these."""
    users = await management.policies()
    operators = await management.policies(operator=True)
    foreign = [policy for policy in (*users, *operators) if not policy.name.startswith(PREFIX)]
    if not foreign:
        return []
    return await asyncio.to_thread(_overriding, list(queues), users, operators, foreign)


def _overriding(
    queues: Iterable[Queue],
    users: Sequence[Policy],
    operators: Sequence[Policy],
    foreign: Sequence[Policy],
) -> list[str]:
    ruled: dict[tuple[bool, str], list[str]] = {}
    for queue in queues:
        for policy in (*winners(queue, users), *winners(queue, operators)):
            if policy in foreign:
                ruled.setdefault((policy.is_operator, policy.name), []).append(queue.name)
    return [
        _sentence(policy, ruled[policy.is_operator, policy.name])
        for policy in foreign
        if (policy.is_operator, policy.name) in ruled
    ]


def _sentence(policy: Policy, queues: Sequence[str]) -> str:
    kind = "operator policy" if policy.is_operator else "policy"
    where = f"the queue {queues[0]!r}" + (f" and {len(queues) - 1} more" if queues[1:] else "")
    settings = ", ".join(sorted(policy.definition))
    return (
        f"The {kind} {policy.name!r} ({settings}) rules {where} instead of the bridge's own: "
        "give it a pattern that leaves them out."
    )
