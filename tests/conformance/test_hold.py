"""The operations that hold an entity for a migration: who may ask, and what they must say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridge.model.entity import AuthorizationRule, Entity, Right, Rule
from bridge.model.errors import EntityConflict, ServerBusy
from bridge.remote.credentials import SharedKey
from bridge.remote.errors import RemoteBusy, RemoteRefused, RemoteUnauthorized
from bridge.remote.namespace import RemoteNamespace
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.door import ROOT_RULE
from tests.conformance.remote import ONCE, ROOT, remote
from tests.conformance.served import QUEUE, gateway

CLERK = AuthorizationRule(
    name="clerk", primary_key="k", rights=frozenset({Right.SEND, Right.LISTEN})
)


class Holds:
    """Notes who holds what."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    async def hold(self, path: str, run: str) -> None:
        """Note it, unless another run holds it."""
        if self.of.setdefault(path, run) != run:
            raise EntityConflict(f"The entity '{path}' is held by the migration '{self.of[path]}'.")

    async def release(self, path: str, run: str) -> None:
        """Forget it."""
        self.of.pop(path, None)

    async def create(self, entity: Entity) -> Entity:
        """There is one queue."""
        raise NotImplementedError

    async def delete(self, path: str) -> None:
        """It stays."""
        raise NotImplementedError

    async def create_rule(self, subscription: str, rule: Rule) -> None:
        """There are queues only."""
        raise NotImplementedError

    async def delete_rule(self, subscription: str, name: str) -> None:
        """There are queues only."""
        raise NotImplementedError


class Holding(MemoryNamespace):
    """A namespace whose entities can be held."""

    def __init__(self) -> None:
        super().__init__(QUEUE)
        self.holds = Holds()

    @property
    def administration(self) -> Holds:
        """Notes holds."""
        return self.holds


class BesideOlder(Holding):
    """A namespace with a bridge that knows no holds."""

    def check_known(self, feature: str) -> None:
        """It knows nothing."""
        raise ServerBusy(f"A bridge does not know '{feature}'. Replace it.")


async def test_an_entity_is_not_held_while_a_bridge_would_not_follow() -> None:
    """It is told what that one does not know; a hold that is there can be ended."""
    holding = BesideOlder()
    async with (
        gateway(ROOT_RULE, CLERK, namespace=holding) as (_, port),
        remote(port, ROOT, patience=ONCE) as namespace,
    ):
        management = await namespace.management("q")
        with pytest.raises(RemoteBusy, match=r"does not know 'com\.busbridge:hold'"):
            await management.hold("run-1")
        assert holding.holds.of == {}
        holding.holds.of["q"] = "run-1"
        await management.release("run-1")
        assert holding.holds.of == {}


@asynccontextmanager
async def served(credential: SharedKey = ROOT) -> AsyncIterator[tuple[RemoteNamespace, Holds]]:
    """Serve one queue, and connect to it."""
    holding = Holding()
    async with (
        gateway(ROOT_RULE, CLERK, namespace=holding) as (_, port),
        remote(port, credential, patience=ONCE) as namespace,
    ):
        yield namespace, holding.holds


async def test_an_entity_is_held_and_released_by_its_run() -> None:
    """Both may be asked for twice; another run is refused, by name."""
    async with served() as (namespace, holds):
        management = await namespace.management("q")
        for _ in range(2):
            await management.hold("run-1")
            assert holds.of == {"q": "run-1"}
        with pytest.raises(RemoteRefused, match="held by the migration 'run-1'"):
            await management.hold("run-2")
        for _ in range(2):
            await management.release("run-1")
            assert holds.of == {}


async def test_a_hold_needs_the_right_manage() -> None:
    """Who sends and listens must not stop everybody."""
    async with served(SharedKey("clerk", "k")) as (namespace, holds):
        management = await namespace.management("q")
        for refused in (management.hold("run-1"), management.release("run-1")):
            with pytest.raises(RemoteUnauthorized, match="'Manage'"):
                await refused
        assert holds.of == {}


@pytest.mark.parametrize("run", ["", "a b", "x" * 65])
async def test_a_run_without_a_name_is_refused(run: str) -> None:
    """It would stand in every error."""
    async with served() as (namespace, holds):
        management = await namespace.management("q")
        with pytest.raises(RemoteRefused, match="1 to 64 letters"):
            await management.hold(run)
        assert holds.of == {}


async def test_a_sub_queue_is_not_held_by_itself() -> None:
    """Its entity is, as a whole."""
    async with served() as (namespace, holds):
        management = await namespace.management("q/$deadletterqueue")
        with pytest.raises(RemoteRefused, match="held as a whole"):
            await management.hold("run-1")
        assert holds.of == {}
