"""The policies of a namespace: all that this process writes goes through here.

Entities of equal settings share policies, whose patterns list their queues. Whoever puts a policy
leaves in it what is right, and the names that it does not know: another bridge may be making their
entities. Two bridges that put the same policy at one moment do not see each other's name: so a
bridge looks at the policies once more when it has written a definition, and whenever another bridge
tells of one. Within a process all writers share the entities that are being made, and write one
after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence, Set

from bridge.broker.management.api import Management
from bridge.model import entity as model
from bridge.topology.compiler import compile_policies
from bridge.topology.definitions import standing, with_entity
from bridge.topology.diff import Action, Change, diff
from bridge.topology.parts import QUORUM
from bridge.topology.perils import key_of
from bridge.topology.resources import Policy, Queue, Topology
from bridge.topology.sharing import Sharing, priority_of

log = logging.getLogger(__name__)


class Policies:
    """Puts the policies of a namespace.

    Args:
        namespace: returns all entities as this process knows them.
        on_made_again: called with the name of a policy that was deleted or changed by hand.

    Attributes:
        owns_vhost: the virtual host has no quorum queues but the bridge's, by its owner's word.
    """

    def __init__(
        self,
        management: Management,
        namespace: Callable[[], model.Namespace],
        on_made_again: Callable[[str], None] = lambda name: None,
        *,
        owns_vhost: bool = False,
    ) -> None:
        self.owns_vhost = owns_vhost
        self._strangers: Set[str] = frozenset()
        self._management = management
        self._namespace = namespace
        self._making: dict[str, model.Entity] = {}
        self._writing = asyncio.Lock()
        self._known: set[tuple[object, ...]] = set()
        self._on_made_again = on_made_again

    @contextlib.contextmanager
    def making(self, entities: Sequence[model.Entity]) -> Iterator[None]:
        """Have all policies put meanwhile include entities without, or before, a definition."""
        made = {each.path.lower(): each for each in entities}
        self._making |= made
        try:
            yield
        finally:
            for path in made:
                self._making.pop(path, None)

    async def put(self, *, others: Collection[str] | None = None, is_look: bool = False) -> None:
        """Put the policies without which a queue has other settings than wanted; no operator's.

        RabbitMQ has applied a policy to all queues when it answers.

        Args:
            others: a user's own quorum queues; None when nobody has looked.
            is_look: all definitions have just been read. A name that has none at two looks is taken
                off the policies.

        Raises:
            BrokerError: the management API cannot be used.
        """
        async with self._writing:
            management = self._management
            live = (*await management.policies(), *await management.policies(operator=True))
            namespace = standing(self._namespace())
            for entity in self._making.values():
                namespace = with_entity(namespace, entity)
            strangers: set[str] = set()
            gone: Set[str] = self._strangers if is_look else frozenset()

            def keeps(name: str) -> bool:
                strangers.add(name)
                return name not in gone

            sharing = Sharing(live=live, keeps=keeps, is_own=self.owns_vhost, others=others)
            priority = priority_of(live)
            policies, settings = compile_policies(namespace, priority=priority, sharing=sharing)
            if is_look:
                self._strangers = strangers - gone
            active = tuple(Queue(name=name, arguments=QUORUM) for name in settings)
            there = Topology(queues=active, policies=live)
            known, self._known = self._known, set(map(key_of, live))
            for change in diff(Topology(policies=policies), there, keep=True):
                policy = change.resource
                assert isinstance(policy, Policy)
                # An operator policy that is there with other settings is an operator's decision.
                if policy.is_operator and change.live is not None:
                    continue
                await put_policy(change, policy, management)
                self._name(change, policy, was_there=key_of(policy) in known)

    def _name(self, change: Change, policy: Policy, *, was_there: bool) -> None:
        """Log a change; name one that somebody else's change by hand has made necessary."""
        log.info("policy.put name=%s action=%s", policy.name, change.action.value)
        if change.action is Action.DELETE:
            self._known.discard(key_of(policy))
            return
        self._known.add(key_of(policy))
        before = change.live
        is_changed = isinstance(before, Policy) and before.definition != policy.definition
        if is_changed or (before is None and was_there):
            log.warning("policy.made_again name=%s", policy.name)
            self._on_made_again(f"the policy {policy.name!r}")


async def put_policy(change: Change, policy: Policy, management: Management) -> None:
    """Carry out the change of a policy."""
    if change.action is Action.DELETE:
        await management.delete_policy(policy.name, operator=policy.is_operator)
    else:
        await management.put_policy(policy)
