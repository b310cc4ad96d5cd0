"""The engine's health: whether it can serve, and a sentence for each reason why it cannot."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.broker.management.api import Management
from bridge.engine.ownership.services import Services
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.sessions.accepting import Accepting
from bridge.machine.suspects import Suspect
from bridge.model import entity as model
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.policy import PREFIX, winners
from bridge.topology.resources import Policy


class State:
    """The engine's health.

    Attributes:
        management: the management API's error at the last attempt, else `None`.
        findings: a sentence for each foreign policy that overrides the bridge's.
        alarms: RabbitMQ's alarms by its management API, such as `disk on rabbit@a`.
    """

    def __init__(self, services: Services, receiving: Receiving, sessions: Accepting) -> None:
        self._sender = services.sender
        self._connections = services.connections
        self._receiving = receiving
        self._locks = services.locks
        self._sessions = sessions
        self.management: str | None = None
        self.findings: Sequence[str] = ()
        self.alarms: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"State(reasons={self.reasons!r})"

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
        return [each.sentence for each in self.silent] + self._sessions.natives

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
        # RabbitMQ tells a connection of an alarm only when that publishes.
        alarm = self._sender.blocked or ", ".join(self.alarms)
        if alarm:
            found.append(
                f"RabbitMQ has an alarm and takes no messages: {alarm}. Sends are answered with "
                "server-busy, settlement goes on."
            )
        if self.management is not None:
            found.append(f"RabbitMQ's management API cannot be used: {self.management}.")
        return found + list(self.findings)


async def policy_reasons(
    namespace: model.Namespace, capabilities: Capabilities, management: Management
) -> list[str]:
    """Return a sentence for each foreign policy that overrides the bridge's on a queue."""
    users = await management.policies()
    operators = await management.policies(operator=True)
    foreign = [policy for policy in (*users, *operators) if not policy.name.startswith(PREFIX)]
    if not foreign:
        return []
    ruled: dict[tuple[bool, str], list[str]] = {}
    for queue in compile_namespace(namespace, capabilities).queues:
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
