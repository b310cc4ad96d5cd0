"""Every entity ends up with its own settings, in whatever order several writers put policies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker.errors import ManagementSilent
from bridge.broker.management.api import Management
from bridge.engine.administration.policies import Policies
from bridge.model import entity as model
from bridge.topology.compiler import compile_policies
from bridge.topology.definitions import with_entity
from bridge.topology.parts import QUORUM
from bridge.topology.policy import winners
from bridge.topology.resources import Policy, Queue
from tests.fixtures.examples import examples

NAMES = [f"{letter}{'-of-a-long-name' * 12}" for letter in "abcdefgh"]
"""So long that a pattern holds five at most."""

COUNTS = [3, 10, 77]
BRIDGES = 2

Step = tuple[str, int, str, int]
"""What is done, by which bridge, to which queue, with which MaxDeliveryCount."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["make", "make", "delete", "poll"]),
        st.integers(0, BRIDGES - 1),
        st.sampled_from(NAMES),
        st.sampled_from(COUNTS),
    ),
    min_size=1,
    max_size=12,
)
"""They are begun at once, each bridge's and entity's changes after one another."""


class RabbitMQ:
    """RabbitMQ's policies and definitions, behind a management API whose answers are late or fail.

    Attributes:
        definitions: the entities' definitions.
        is_reliable: no request fails.
    """

    def __init__(self, chance: st.DataObject) -> None:
        self.definitions: dict[str, model.Queue] = {}
        self.is_reliable = False
        self._chance = chance
        self._policies: dict[tuple[str, bool], Policy] = {}

    async def policies(self, *, operator: bool = False) -> list[Policy]:
        """Return the policies, or the operator policies."""
        await self._passing()
        found = [
            each for (_, is_operator), each in self._policies.items() if is_operator == operator
        ]
        await self._passing()
        return found

    async def put_policy(self, policy: Policy) -> None:
        """Create or replace a policy."""
        await self._passing()
        self._policies[policy.name, policy.is_operator] = policy
        await self._passing()

    async def delete_policy(self, name: str, *, operator: bool = False) -> None:
        """Delete a policy."""
        await self._passing()
        self._policies.pop((name, operator), None)
        await self._passing()

    async def _passing(self) -> None:
        """Take some turns of the loop; perhaps fail, before or after the change was made."""
        turns = self._chance.draw(st.sampled_from([0, 0, 1, 3]))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not self.is_reliable and self._chance.draw(st.integers(0, 19)) == 0:
            raise ManagementSilent(text="no answer")

    def settings_of(self, queue: str) -> dict[str, object]:
        """Return what the policy in force says of a queue."""
        (found,) = winners(Queue(name=queue, arguments=QUORUM), self._policies.values())
        return dict(found.definition)


class Bridge:
    """A bridge's administration: it knows of other bridges' entities when it is told."""

    def __init__(self, rabbitmq: RabbitMQ) -> None:
        self._rabbitmq = rabbitmq
        self._known: dict[str, model.Queue] = {}
        self._policies = Policies(cast(Management, rabbitmq), self._namespace)
        self.others: list[Bridge] = []

    def _namespace(self) -> model.Namespace:
        return namespace_of(self._known.values())

    async def make(self, queue: model.Queue) -> None:
        """Create or update a queue, as `Administration.write` does."""
        with self._policies.making((queue,)):
            await self._policies.put()
            self._rabbitmq.definitions[queue.name] = queue
            self._known[queue.name] = queue
            await self._tell(queue.name)
        await self._policies.put()

    async def delete(self, name: str) -> None:
        """Delete a queue's definition; its policy goes with the next change."""
        self._rabbitmq.definitions.pop(name, None)
        self._known.pop(name, None)
        await self._tell(name)

    async def _tell(self, name: str) -> None:
        for each in self.others:
            asyncio.get_running_loop().call_soon(each.hear, name)
        await asyncio.sleep(0)

    def hear(self, name: str) -> None:
        """Read a definition that another bridge has changed; a poll puts the policies."""
        found = self._rabbitmq.definitions.get(name)
        if found is None:
            self._known.pop(name, None)
        else:
            self._known[name] = found

    async def poll(self) -> None:
        """Read all definitions, and put what is missing."""
        self._known = dict(self._rabbitmq.definitions)
        await self._policies.put()


def namespace_of(queues: Iterable[model.Queue]) -> model.Namespace:
    """Return a namespace of these queues."""
    namespace = model.Namespace()
    for each in queues:
        namespace = with_entity(namespace, each)
    return namespace


async def carry_out(bridge: Bridge, step: Step, lock: asyncio.Lock) -> None:
    """Do one thing; a request that fails ends it half-way."""
    what, _, name, count = step
    with contextlib.suppress(ManagementSilent):
        if what == "poll":
            await bridge.poll()
            return
        async with lock:
            if what == "make":
                await bridge.make(model.Queue(name=name, max_delivery_count=count))
            else:
                await bridge.delete(name)


async def run(steps: list[Step], chance: st.DataObject, *, bridges: int, fails: bool) -> None:
    """Do everything at once; when requests fail, then poll once at each bridge without failures."""
    rabbitmq = RabbitMQ(chance)
    rabbitmq.is_reliable = not fails
    running = [Bridge(rabbitmq) for _ in range(bridges)]
    for each in running:
        each.others = [other for other in running if other is not each]
    locks = {name: asyncio.Lock() for name in NAMES}
    doings = (carry_out(running[step[1] % bridges], step, locks[step[2]]) for step in steps)
    await asyncio.gather(*doings)
    if fails:
        rabbitmq.is_reliable = True
        for each in running:
            await each.poll()
    for queue in rabbitmq.definitions.values():
        _, wanted = compile_policies(namespace_of([queue]))
        assert rabbitmq.settings_of(queue.name) == dict(wanted[queue.name])


@given(STEPS, st.data())
@settings(max_examples=examples(150), deadline=None)
def test_at_the_end_every_queue_has_its_own_settings(
    steps: list[Step], chance: st.DataObject
) -> None:
    """Creates, updates and deletes of two bridges at once, with answers that are late or fail."""
    asyncio.run(run(steps, chance, bridges=BRIDGES, fails=True))


@given(STEPS, st.data())
@settings(max_examples=examples(150), deadline=None)
def test_what_one_bridge_has_answered_is_in_force(steps: list[Step], chance: st.DataObject) -> None:
    """Its changes at once, with late answers: none waits for a poll to be whole."""
    asyncio.run(run(steps, chance, bridges=1, fails=False))
