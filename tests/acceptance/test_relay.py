"""Two bridges with `busbridge relay` between them: nothing is lost, nothing is numbered twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bridge.model.properties import EntityKind
from bridge.relay.file_secrets import FileSecrets
from bridge.relay.plan.file import read_file
from bridge.relay.running.relay import Relay
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import credential_in
from bridge.remote.entity import entity_node
from bridge.remote.errors import RemoteError
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import DeadLetter
from bridge.testing.process import Bridge
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.acceptance.test_remote import remote, take
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.relay_process import RelayProcess
from tests.fixtures.waiting import WITHIN_S, until

SHORT = {"LockDuration": "PT5S", "MaxDeliveryCount": 2000}

QUEUES = {
    "loose": SHORT,
    "ordered": SHORT,
    "handed": SHORT,
    "sessions": {**SHORT, "RequiresSession": True},
    "dying": SHORT,
    "died": SHORT,
    "consumed": SHORT,
    "busbridge-relay": {**SHORT, "RequiresSession": True},
    "stated": {**SHORT, "RequiresSession": True},
    "wild-1": SHORT,
}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "relay"}]}

FILE = """
control = "azure/busbridge-relay"

[sides.azure]
env = "AZURE"
id = "azure"

[sides.local]
env = "LOCAL"
id = "local"

[[routes]]
from = "azure/loose"
to = "local/loose"

[[routes]]
from = "azure/ordered"
to = "local/ordered"
order = "entity"

[[routes]]
from = "azure/sessions"
to = "local/sessions"
sessions = 4

[[routes]]
from = "azure/dying/$DeadLetterQueue"
to = "local/died"
"""

LOOSE, ORDERED, SESSIONS, IN_SESSION, DEAD = 900, 300, 20, 20, 400
SCHEDULED = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The entities of both bridges."""
    return config_in(tmp_path_factory.mktemp("config"))


def config_in(folder: Path) -> Path:
    """Write the entities of both bridges."""
    queues = [{"Name": name, "Properties": properties} for name, properties in QUEUES.items()]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": [TOPIC]}
    document = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}
    path = folder / "Config.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def bridges(broker: Broker, config: Path) -> Iterator[tuple[Bridge, Bridge]]:
    """Two bridges, each on a virtual host of its own."""
    with broker.fresh_vhost() as first, broker.fresh_vhost() as second:
        both = bridge_of(broker, first, config=config), bridge_of(broker, second, config=config)
        try:
            for each in both:
                each.start()
            yield both
        finally:
            for each in both:
                each.kill()


def relay_between(azure: Bridge, local: Bridge, folder: Path, text: str = FILE) -> RelayProcess:
    """A relay that is not started yet."""
    file = folder / "relay.toml"
    file.write_text(text)
    environment = {"AZURE": azure.connection_string, "LOCAL": local.connection_string}
    return RelayProcess(file, environment)


def message(name: str, **options: Any) -> RemoteMessage:
    """A message with an id that names it; of a session where the name has a colon."""
    session_id = name.partition(":")[0] if ":" in name else None
    properties = MessageProperties(message_id=name, group_id=session_id)
    return RemoteMessage.of(data=name.encode(), properties=properties, **options)


async def fill(namespace: RemoteNamespace) -> None:
    """Send 2,000 messages: plain, with TTLs, scheduled, of sessions, and dead letters."""
    now_ms = int(time.time() * 1000)
    loose = await namespace.sender("loose")
    plain = [
        message(f"loose-{each}", ttl_ms=3_600_000 if each % 3 == 0 else None)
        for each in range(LOOSE - SCHEDULED)
    ]
    later = [
        message(f"later-{each}", annotations={"x-opt-scheduled-enqueue-time": now_ms + 4_000})
        for each in range(SCHEDULED)
    ]
    await in_batches(loose, plain)
    await loose.send(later)
    await in_batches(
        await namespace.sender("ordered"), [message(f"ordered-{each}") for each in range(ORDERED)]
    )
    sessions = await namespace.sender("sessions")
    for each in range(SESSIONS):
        await sessions.send([message(f"s{each}:{number}") for number in range(IN_SESSION)])
    await in_batches(
        await namespace.sender("dying"), [message(f"dead-{each}") for each in range(DEAD)]
    )
    receiver = await namespace.receiver("dying")
    for _ in range(DEAD // 100):
        await receiver.settle_all(await take(receiver, 100), DeadLetter("reason", "words"))
    await receiver.close()


async def in_batches(sender: Any, messages: list[RemoteMessage]) -> None:
    """Send messages, 100 in a batch."""
    for start in range(0, len(messages), 100):
        await sender.send(messages[start : start + 100])


async def peeked(namespace: RemoteNamespace, path: str) -> list[RemoteMessage]:
    """All messages of an entity, in order."""
    management = await namespace.management(path)
    found: list[RemoteMessage] = []
    number = 1
    while page := await management.peek(number, 250):
        found += page
        number = int(page[-1].sequence_number or 0) + 1
    return found


SOURCES = "loose", "ordered", "sessions", "dying/$DeadLetterQueue"
TARGETS = {"loose": LOOSE, "ordered": ORDERED, "sessions": SESSIONS * IN_SESSION, "died": DEAD}


async def arrived(namespace: RemoteNamespace) -> int:
    """How many messages have come to the target."""
    return sum([len(await peeked(namespace, each)) for each in TARGETS])


async def until_empty(
    namespace: RemoteNamespace, paths: Iterable[str], *, within_s: float = WITHIN_S
) -> None:
    """Wait until entities have no message, one after the other; a namespace may be away."""
    for path in paths:

        async def is_empty(path: str = path) -> bool:
            try:
                return not await peeked(namespace, path)
            except RemoteError:
                return False

        await until(is_empty, within_s=within_s)


async def judge(source: RemoteNamespace, target: RemoteNamespace) -> None:
    """Check that each message is at the target once, in its order, and nowhere else."""
    for path, count in TARGETS.items():
        found = await peeked(target, path)
        names = Counter(str(each.message_id) for each in found)
        twice = [name for name, times in names.items() if times > 1]
        assert not twice, f"{path}: numbered twice: {twice[:10]}"
        assert len(names) == count, f"{path}: {len(names)} of {count}"
    ordered = [str(each.message_id) for each in await peeked(target, "ordered")]
    assert ordered == [f"ordered-{each}" for each in range(ORDERED)]
    by_session: dict[str, list[int]] = {}
    for each in await peeked(target, "sessions"):
        session, _, number = str(each.message_id).partition(":")
        by_session.setdefault(session, []).append(int(number))
    assert by_session == {f"s{each}": list(range(IN_SESSION)) for each in range(SESSIONS)}
    for each in await peeked(target, "died"):
        assert each.dead_letter_reason == "reason"
        assert each.application_property_values["x-busbridge-relay"] == "azure/dying"
    with_ttl = [each for each in await peeked(target, "loose") if each.ttl_ms is not None]
    assert with_ttl
    assert all((each.ttl_ms or 0) <= 3_600_000 for each in with_ttl)
    await until_empty(source, SOURCES)


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.kills)])
async def test_a_relay_that_is_killed_loses_nothing_and_numbers_nothing_twice(
    bridges: tuple[Bridge, Bridge], tmp_path: Path, kills: int
) -> None:
    """2,000 mixed messages, kills in the middle: each is at the target once, in its order."""
    azure, local = bridges
    relay = relay_between(azure, local, tmp_path)
    async with remote(azure) as source, remote(local) as target:
        await fill(source)
        relay.start()
        try:
            for kill in range(1, kills + 1):
                wanted = 2_000 * kill // (kills + 2)

                async def has_come(wanted: int = wanted) -> bool:
                    return await arrived(target) >= wanted

                await until(has_come)
                relay.kill()
                relay.start()

            async def has_all() -> bool:
                return await arrived(target) >= 2_000

            await until(has_all)
            await judge(source, target)
        finally:
            await asyncio.to_thread(relay.stop)


SIDES = FILE[FILE.index("[sides.azure]") : FILE.index("[[routes]]")]


@asynccontextmanager
async def relaying(azure: Bridge, local: Bridge, routes: str) -> AsyncIterator[Relay]:
    """Run routes of a file in this process."""
    secrets = FileSecrets(
        Path(), {"AZURE": azure.connection_string, "LOCAL": local.connection_string}
    )
    relay = Relay(read_file(SIDES + routes, secrets, uuid4).whole(), follow_s=1.0)
    relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def test_the_state_of_a_session_goes_before_its_messages(
    bridges: tuple[Bridge, Bridge],
) -> None:
    """Moved, not copied; what the target's session has already stays. One without messages goes."""
    azure, local = bridges
    routes = """
[[routes]]
from = "azure/stated"
to = "local/stated"
states = true
"""
    async with remote(azure) as source, remote(local) as target:
        sender = await source.sender("stated")
        for each in "AB":
            await sender.send([message(f"{each}:{number}") for number in range(5)])
            session = await source.session_receiver("stated", each)
            await session.set_state(b"old")
            await session.close()
        session = await source.session_receiver("stated", "C")
        await session.set_state(b"alone")
        await session.close()
        newer = await target.session_receiver("stated", "B")
        await newer.set_state(b"new")
        await newer.close()
        async with relaying(azure, local, routes) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed == 10 and not status.unconfirmed)
            management = await source.management("stated")

            async def is_empty() -> bool:
                return not await management.message_sessions()

            await until(is_empty)
        session = await target.session_receiver("stated", "C")
        assert await session.state() == b"alone"
        await session.close()
        for each, state in (("A", b"old"), ("B", b"new")):
            session = await target.session_receiver("stated", each)
            assert await session.state() == state
            found = await take(session, 5)
            assert [it.message.message_id for it in found] == [f"{each}:{it}" for it in range(5)]
            await session.close()


async def test_a_circle_through_topics_ends_at_the_subscription(
    bridges: tuple[Bridge, Bridge],
) -> None:
    """Each message is in each namespace once; what comes back is completed, and counted."""
    azure, local = bridges
    routes = """
[[routes]]
name = "there"
from = "azure/events/Subscriptions/relay"
to = "local/events"

[[routes]]
name = "back"
from = "local/events/Subscriptions/relay"
to = "azure/events"
"""
    async with remote(azure) as one, remote(local) as other:
        async with relaying(azure, local, routes) as relay:
            await in_batches(
                await one.sender("events"), [message(f"one-{each}") for each in range(20)]
            )
            await in_batches(
                await other.sender("events"), [message(f"other-{each}") for each in range(20)]
            )
            await until(lambda: sum(each.returned for each in relay.statuses) == 40)
            assert sum(each.relayed for each in relay.statuses) == 40
        for namespace in (one, other):
            names = [
                each.message_id for each in await peeked(namespace, "events/Subscriptions/audit")
            ]
            assert sorted(names) == sorted(
                [*(f"one-{each}" for each in range(20)), *(f"other-{each}" for each in range(20))]
            )


async def test_a_star_finds_entities_that_are_made_later(bridges: tuple[Bridge, Bridge]) -> None:
    """A missing target is named; a deleted queue's route ends."""
    azure, local = bridges
    routes = """
[[routes]]
name = "all"
from = "azure/wild-*"
to = "local/*"
"""
    async with (
        remote(azure) as source,
        remote(local) as target,
        relaying(azure, local, routes) as relay,
    ):
        await (await source.sender("wild-1")).send([message("first")])

        async def has(path: str, name: str) -> bool:
            return [each.message_id for each in await peeked(target, path)] == [name]

        await until(lambda: has("wild-1", "first"))
        await make_queue(azure, "wild-2")
        await (await source.sender("wild-2")).send([message("second")])
        await until(lambda: any("wild-2" in each for each in relay.reasons))
        await make_queue(local, "wild-2")
        await until(lambda: has("wild-2", "second"))
        await until(lambda: not relay.reasons)
        async with administration(azure) as made:
            await made.delete("wild-2")
        await until(lambda: [each.name for each in relay.statuses] == ["all[wild-1]"])


@asynccontextmanager
async def administration(bridge: Bridge) -> AsyncIterator[RemoteAdministration]:
    """The administration of a bridge."""
    text = bridge.connection_string
    credential = credential_in(text)
    assert credential is not None
    async with RemoteAdministration(RemoteAddress.of(text), credential) as found:
        yield found


async def make_queue(bridge: Bridge, name: str) -> None:
    """Create a queue at a bridge."""
    async with administration(bridge) as made:
        await made.create("Queue", entity_node(EntityKind.QUEUE, {}), name)


async def test_of_two_processes_one_has_an_order_and_the_other_takes_over(
    bridges: tuple[Bridge, Bridge], tmp_path: Path
) -> None:
    """The second stands by; when the first is killed, everything goes on in its order."""
    azure, local = bridges
    routes = FILE[FILE.index("[[routes]]") :].split("[[routes]]")[2]
    routes = routes.replace("ordered", "handed")
    text = 'control = "azure/busbridge-relay"\n' + SIDES + "[[routes]]" + routes + "rate = 100\n"
    folders = [tmp_path / each for each in "ab"]
    for each in folders:
        each.mkdir()
    first, second = (relay_between(azure, local, each, text) for each in folders)
    async with remote(azure) as source, remote(local) as target:
        await in_batches(
            await source.sender("handed"), [message(f"handed-{each}") for each in range(ORDERED)]
        )
        try:
            first.start()
            await until(lambda: any(each["state"] == "running" for each in first.rows))
            second.start()
            await until(lambda: any(each["state"] == "standing-by" for each in second.rows))
            first.kill()

            async def has_all() -> bool:
                return len(await peeked(target, "handed")) >= ORDERED

            await until(has_all)
            found = [str(each.message_id) for each in await peeked(target, "handed")]
            assert found == [f"handed-{each}" for each in range(ORDERED)]
        finally:
            first.kill()
            second.kill()
