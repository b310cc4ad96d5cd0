"""`busbridge migrate run --renumber` into a bridge whose entities have given numbers themselves."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import ServiceBusAdministrationClient

from bridge.cli.main import main
from bridge.operations.migration.copy_effects import CopyPlace, PeekedMessage
from bridge.operations.migration.renumbered_message import RENUMBERED, peeked_copy
from bridge.operations.migration.state_counts import sent_bytes
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive, send, take, texts
from tests.acceptance.test_migrate_run import begun, killed, snapshot
from tests.acceptance.two_bridges import MigrateCommands, config, two_bridges
from tests.fixtures.administration import Administer
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"MaxDeliveryCount": 5},
    "partitioned": {"EnablePartitioning": True},
    "sessions": {"RequiresSession": True},
    "clash": {"RequiresSession": True},
    "killed": {},
    "given-up": {},
    "plain": {},
    "states": {"RequiresSession": True},
    "beside": {},
    "ended": {},
    "held": {},
    "drained": {},
    "large": {},
    "untold": {},
    "kept": {"RequiresSession": True},
}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "mail"}]}
NEWS = {"Name": "news", "Subscriptions": [{"Name": "audit"}]}
PATHS = ("orders", "partitioned", "sessions", "events")
PLACES = (
    "orders",
    "orders/$DeadLetterQueue",
    "partitioned",
    "sessions",
    "events",
    "events/Subscriptions/audit",
    "events/Subscriptions/audit/$DeadLetterQueue",
    "events/Subscriptions/mail",
)
DUE = datetime.now(UTC) + timedelta(days=1)
RENUMBER = ("--renumber", "--still", "0.1", "--yes")
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

Copies = dict[int, PeekedMessage]


@pytest.fixture(scope="module")
def bridges(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bridge, Bridge]]:
    """Two bridges with the same entities, and messages in each."""
    folder = tmp_path_factory.mktemp("renumber")
    source = config(folder, "source", QUEUES, TOPIC, NEWS)
    target = config(folder, "target", QUEUES, TOPIC, NEWS)
    with two_bridges(broker, source, target) as both:
        fill(both[0], "order", 8)
        fill(both[1], "own", 5)
        yield both


def fill(bridge: Bridge, what: str, count: int) -> None:
    """Bring messages into all states: one received, one deferred, one dead, one scheduled."""
    with client_of(bridge) as client:
        send(client, "orders", *(ServiceBusMessage(f"{what} {n}") for n in range(count)))
        with client.get_queue_receiver("orders") as receiver:
            one, two, three, *others = receive(receiver, 4)
            receiver.complete_message(one)
            receiver.defer_message(two)
            receiver.dead_letter_message(three, reason="bad", error_description=what)
            for each in others:
                receiver.abandon_message(each)
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages(ServiceBusMessage(f"{what} later"), DUE)
        for n in range(count):
            of = ServiceBusMessage(f"{what} {n}", partition_key=f"k{n % 3}")
            send(client, "partitioned", of)
            send(client, "sessions", ServiceBusMessage(f"{what} {n}", session_id=f"{n % 2}"))
        set_state(client, "sessions", "0" if what == "order" else "own", what.encode())
        set_state(client, "sessions", "1", b"equal")
        with client.get_topic_sender("events") as sender:
            sender.send_messages([ServiceBusMessage(f"{what} {n}") for n in range(count)])
            sender.schedule_messages(ServiceBusMessage(f"{what} later"), DUE)
        with client.get_subscription_receiver("events", "audit") as receiver:
            first, second, *others = receive(receiver, 3)
            receiver.dead_letter_message(first, reason="bad")
            receiver.defer_message(second)
            for each in others:
                receiver.abandon_message(each)


def set_state(client: ServiceBusClient, queue: str, session_id: str, state: bytes) -> None:
    """Set a session's state."""
    with client.get_queue_receiver(queue, session_id=session_id) as receiver:
        receiver.session.set_state(state)


def state(client: ServiceBusClient, queue: str, session_id: str) -> bytes:
    """A session's state."""
    with client.get_queue_receiver(queue, session_id=session_id) as receiver:
        return bytes(receiver.session.get_state())


class Run(MigrateCommands):
    """The command, with both bridges as profiles."""

    def __call__(self, *words: str) -> Said:
        """Run it."""
        return self.said("run", *RENUMBER, *words)

    def other(self, *words: str) -> Said:
        """Run a command on the target."""
        self._capsys.readouterr()
        code = main(list(words))
        return Said(code, *self._capsys.readouterr())


@pytest.fixture
def run(profiles: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command; the profiles `here` and `there` are the two bridges."""
    return Run(capsys)


def by_old_number(target: Bridge, path: str) -> tuple[Copies, Copies]:
    """The copies at a place by their old numbers, and the target's own messages by theirs."""
    copies: Copies = {}
    own: Copies = {}
    for number, each in snapshot(target, path)[path].items():
        mark = each.message.application_property_values.get(RENUMBERED)
        if mark is None:
            own[number] = each
            continue
        place = CopyPlace(
            path=path, is_dead="$Dead" in path, renumbered_by=str(mark).partition("/")[0]
        )
        found = peeked_copy(each.message, place)
        assert found.number not in copies, "each once"
        copies[found.number] = found
    return copies, own


def digests(found: Copies) -> dict[int, bytes]:
    """Their digests by number."""
    return {number: each.digest for number, each in found.items()}


def test_messages_in_all_states_get_numbers_above_the_targets_own(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Order, times, counts and states stay, and so do the target's own messages."""
    source, target = bridges
    eventually(lambda: len(snapshot(source, "orders")["orders"]) == 7, "all is at the source")
    eventually(lambda: len(snapshot(target, "orders")["orders"]) == 4, "and at the target")
    before, own = snapshot(source, *PLACES), snapshot(target, *PLACES)
    refused = run.said("run", "--yes", "--still", "0.1", *PATHS)
    assert (refused.code, "--renumber" in refused.err) == (1, True), refused.err

    planned = run.said("plan", "--renumber", *PATHS)
    assert planned.code == 0, planned.out
    said = run(*PATHS)
    assert said.code == 0, said.err
    assert "under numbers above its own" in said.err
    for path in PLACES:
        copies, others = by_old_number(target, path)
        assert digests(copies) == digests(before[path])
        assert digests(others) == digests(own[path])
        for place in (path, path.partition("/$")[0]):
            highest: dict[int, int] = {}
            for number in own[place]:
                highest[number >> 48] = max(highest.get(number >> 48, 0), number)
            for old, each in copies.items():
                assert each.shown_number > highest.get(each.shown_number >> 48, 0)
                assert each.shown_number >> 48 == old >> 48
        order = [each.number for each in sorted(copies.values(), key=lambda m: m.shown_number)]
        assert order == sorted(order)
    scheduled = [e for p in ("orders", "events") for e in snapshot(source, p)[p].values()]
    assert not any(each.due_ms is not None for each in scheduled), "cancelled at the source"

    mapped = run.other("migrate", "map", *PATHS, "-n", "there", "--json")
    rows = {(row["entity"], row["queue"], row["old"]): row["new"] for row in mapped.rows}
    found, _ = by_old_number(target, "orders")
    for old, each in found.items():
        assert rows["orders", "messages", old] == each.shown_number

    with client_of(target) as client:
        deferred = next(
            n for n, each in before["orders"].items() if each.message.state == "deferred"
        )
        with client.get_queue_receiver("orders") as receiver:
            wanted = rows["orders", "messages", deferred]
            (kept,) = receiver.receive_deferred_messages(wanted)
            assert str(kept) == "order 1"
            assert kept.application_properties[b"repl-sequence"] == str(deferred).encode()
            expected = [f"own {n}" for n in (3, 4)] + [f"order {n}" for n in range(3, 8)]
            assert texts(take(receiver, len(expected))) == expected
        with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            assert [each.dead_letter_error_description for each in receive(dead, 2)] == [
                "own",
                "order",
            ]
        assert state(client, "sessions", "0") == b"order"
        assert state(client, "sessions", "own") == b"own"
        send(client, "orders", "new")
        highest_copy = max(each.shown_number for each in found.values())
        with client.get_queue_receiver("orders") as receiver:
            (new,) = take(receiver, 1)
            assert new.sequence_number > highest_copy


def test_verify_compares_by_the_old_numbers_and_finds_what_differs(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """The target's own messages and states are counted apart; `back` refuses by name."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "plain", *(ServiceBusMessage(f"{n}") for n in range(5)))
        set_state(client, "states", "a", b"x")
    with client_of(target) as client:
        send(client, "plain", "its own", "and another")
        set_state(client, "states", "own", b"y")
    eventually(lambda: len(snapshot(target, "plain")["plain"]) == 2, "they are there")
    said = run("plain", "states")
    assert said.code == 0, said.err
    verified = run.said("verify", "--renumber", "plain", "states", "--session-states", "--json")
    assert verified.code == 0, verified.out
    rows = {row["entity"]: row for row in verified.rows if row.get("queue") == "messages"}
    assert (rows["plain"]["target"], rows["plain"]["own"]) == ({"active": 5}, 2)
    assert run.said("verify", "plain").code == 3, "without the option numbers differ"

    with client_of(target) as client, client.get_queue_receiver("plain") as receiver:
        taken = take(receiver, 3)
        assert texts(taken) == ["its own", "and another", "0"]
    found = run.said("verify", "--renumber", "plain", "--json")
    assert found.code == 3
    (difference,) = [row for row in found.rows if row["part"] == "difference"]
    assert (difference["number"], difference["is_at"]) == (1, ["source"])

    back = run.said("back", "--yes", "plain")
    assert (back.code, "its copies have new numbers" in back.err) == (1, True), back.err
    assert "`busbridge migrate verify --renumber plain`" in back.err
    (refused,) = (row for row in back.rows if row["part"] == "refused")
    assert (refused["entity"], refused["text"] in back.err) == ("plain", True)
    again = run("plain")
    assert (again.code, "an earlier run has ended there" in again.err) == (1, True), again.err
    with client_of(target) as client:
        send(client, "plain", "lives")
    namespace = RemoteAddress.of(source.connection_string).namespace
    finished = run.said("finish", "plain", "--yes", namespace)
    assert finished.code == 0, finished.err
    eventually(lambda: not snapshot(source, "plain")["plain"], "the source is empty")


def test_what_the_target_alone_has_is_no_difference_of_copies_with_new_numbers(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """A subscription that was made there is named apart, with how many messages it has."""
    source, target = bridges
    own = "news/Subscriptions/own"
    for bridge in (source, target):
        with client_of(bridge) as client, client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("news"))
    assert run("news").code == 0
    assert main(["create", "subscription", "news", "own", "-n", "there"]) == 0
    with client_of(target) as client, client.get_topic_sender("news") as sender:
        sender.send_messages(ServiceBusMessage("more news"))
    eventually(lambda: len(snapshot(target, own)[own]) == 1, "it is there")
    said = run.said("verify", "--renumber", "news", "--session-states", "--json")
    assert (said.code, "0 differences" in said.err) == (0, True), said.err
    assert f"{own}: the target alone has it: it is its own, and no difference (1 mess" in said.err
    (row,) = (row for row in said.rows if row["part"] == "own")
    assert (row["entity"], row["messages"]) == (own, 1)


def test_a_run_into_what_an_earlier_one_has_moved_advises_what_can_be_done(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """All was received at the target: its numbers are used, and copies would come twice."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "drained", "one")
    eventually(lambda: len(snapshot(source, "drained")["drained"]) == 1, "it is there")
    assert run.said("run", "--yes", "--still", "0.1", "drained").code == 0
    with client_of(target) as client, client.get_queue_receiver("drained") as receiver:
        assert texts(take(receiver, 1)) == ["one"]
    again = run.said("run", "--yes", "--still", "0.1", "drained")
    assert (again.code, "so leave it out" in again.err) == (1, True), again.err
    assert "takes copies under new ones" not in again.err
    with client_of(target) as client:
        send(client, "drained", "it is not held")


def test_a_message_that_cannot_say_its_old_number_is_refused_by_the_plan_and_the_run(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """The plan tells how many there are; nothing is copied of their entity."""
    source, target = bridges
    with client_of(source) as client:
        texts = ({"repl-sequence": "some text"}, {"repl-sequence": 5}, {"repl-sequence": 6})
        send(client, "untold", *(ServiceBusMessage("-", application_properties=e) for e in texts))
    eventually(lambda: len(snapshot(source, "untold")["untold"]) == 3, "they are there")
    planned = run.said("plan", "--renumber", "--peek", "untold")
    (refusal,) = (row for row in planned.rows if row.get("level") == "refusal")
    assert planned.code == 3
    assert refusal["subject"] == "application properties"
    assert refusal["text"] == (
        "2 messages, of which 2 is the first, have an application property 'repl-sequence' that "
        "is no text, where the old number would stand: receive them first."
    )
    assert run.said("plan", "--peek", "untold").code == 0
    said = run("untold")
    assert said.code == 1
    assert "untold: message 2 has an application property 'repl-sequence' that is no" in said.err
    assert not snapshot(target, "untold")["untold"]


def test_a_copy_that_would_be_too_large_is_refused_by_name_before_it_is_copied(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """With what says its old number it is larger than the target's largest message."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "large", ServiceBusMessage(b"x" * 1_000))
        eventually(lambda: len(snapshot(source, "large")["large"]) == 1, "it is there")
        (shown,) = snapshot(source, "large")["large"].values()
        beside = sent_bytes(shown.message) - 1_000
        send(client, "large", ServiceBusMessage(b"x" * (262_140 - beside)))
    eventually(lambda: len(snapshot(source, "large")["large"]) == 2, "they are there")
    planned = run.said("plan", "--renumber", "--peek", "large")
    (refusal,) = (row for row in planned.rows if row.get("level") == "refusal")
    assert planned.code == 3
    assert refusal["text"].startswith("the copy of message 2, which says what number it had, has")
    assert run.said("plan", "--peek", "large").code == 0
    said = run("large")
    assert said.code == 1
    assert "large: message 2 has 262," in said.err
    assert "and the target takes 262,144: receive it first" in said.err
    assert not snapshot(target, "large")["large"]
    with client_of(target) as client:
        send(client, "large", "it is not held")


def killed_in_its_copy(admin: ServiceBusAdministrationClient, queue: str) -> bool:
    """Kill a run when it has copied something; whether it had not come to its end before."""

    def count() -> int:
        found = admin.get_queue_runtime_properties(queue).total_message_count
        assert found is not None
        return found

    before = count()
    process = begun("--renumber", queue)
    eventually(lambda: process.poll() is not None or count() > before, "it copies")
    was_running = process.poll() is None
    killed(process)
    return was_running


def test_a_run_that_is_killed_goes_on_without_a_second_copy(
    bridges: tuple[Bridge, Bridge], run: Run, administer: Administer
) -> None:
    """Killed a few times, the target's own messages beside: each copy once."""
    source, target = bridges
    with client_of(source) as client:
        for at in range(0, 2_000, 500):
            send(client, "killed", *(ServiceBusMessage(f"{at + n}") for n in range(500)))
        with client.get_queue_sender("killed") as sender:
            sender.schedule_messages([ServiceBusMessage("later")] * 100, DUE)
    with client_of(target) as client:
        send(client, "killed", *(ServiceBusMessage(f"own {n}") for n in range(300)))
    eventually(lambda: len(snapshot(source, "killed")["killed"]) == 2_100, "all is at the source")
    eventually(lambda: len(snapshot(target, "killed")["killed"]) == 300, "and at the target")
    before, own = snapshot(source, "killed")["killed"], snapshot(target, "killed")["killed"]
    kills = sum(killed_in_its_copy(administer(target), "killed") for _ in range(2))
    said = run("killed")
    assert said.code == 0 or "an earlier run has ended there" in said.err
    assert kills
    copies, others = by_old_number(target, "killed")
    assert digests(copies) == digests(before)
    assert digests(others) == digests(own)


def test_a_session_with_a_state_at_each_side_is_named_and_the_run_can_be_given_up(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Nothing may be received there before; afterwards the target goes on."""
    source, target = bridges
    for bridge, what in ((source, b"one"), (target, b"another")):
        with client_of(bridge) as client:
            send(client, "clash", ServiceBusMessage("x", session_id="s"))
            set_state(client, "clash", "s", what)
    said = run("clash")
    assert (said.code, "a state of session 's'" in said.err) == (1, True), said.err
    given = run.said("run", "--renumber", "--give-up", "--yes", "clash")
    assert given.code == 0, given.err
    with client_of(target) as client:
        assert state(client, "clash", "s") == b"another"


def test_the_copies_of_a_run_that_is_given_up_are_removed_by_the_commands_that_it_shows(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """And nothing else: the target's own stay."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "given-up", *(ServiceBusMessage(f"{n}") for n in range(1_000)))
        with client.get_queue_sender("given-up") as sender:
            sender.schedule_messages(ServiceBusMessage("later"), DUE)
    with client_of(target) as client:
        send(client, "given-up", "its own")
    eventually(lambda: len(snapshot(target, "given-up")["given-up"]) == 1, "it is there")
    process = begun("--renumber", "given-up")
    eventually(
        lambda: process.poll() is not None or bool(by_old_number(target, "given-up")[0]), "copies"
    )
    assert process.poll() is None
    killed(process)
    plain = run.said("run", "--yes", "given-up")
    assert (plain.code, "Delete" in plain.err) == (1, False), plain.err
    given = run.said("run", "--renumber", "--give-up", "--yes", "given-up")
    assert given.code == 0, given.err
    for row in given.rows:
        command = shlex.split(row["command"])[1:]
        assert run.other(*command, "--yes").code == 0
    eventually(lambda: not by_old_number(target, "given-up")[0], "they are gone")
    (own,) = by_old_number(target, "given-up")[1].values()
    assert own.message.data == b"its own"


def test_states_that_stay_behind_a_run_that_is_given_up_are_named(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Those that the source has, too: the target's own are counted alone."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "kept", *(ServiceBusMessage(f"{n}", session_id="s") for n in range(1_000)))
        set_state(client, "kept", "s", b"copied")
    with client_of(target) as client:
        set_state(client, "kept", "own", b"own")
    process = begun("--renumber", "kept")
    eventually(
        lambda: process.poll() is not None or bool(by_old_number(target, "kept")[0]), "copies"
    )
    assert process.poll() is None
    killed(process)
    given = run.said("run", "--renumber", "--give-up", "--yes", "kept")
    assert given.code == 0, given.err
    (row,) = (row for row in given.rows if row.get("part") == "session_states")
    assert (row["entity"], row["states"], row["same_at_source"]) == ("kept", 2, ["s"])
    assert f"kept: {row['text']}." in given.err
    assert "`busbridge session state clear kept --session ID -n there`" in row["text"]
    with client_of(target) as client:
        assert state(client, "kept", "own") == b"own"
        assert state(client, "kept", "s") == b"copied"


def test_a_run_that_has_ended_cannot_be_given_up(bridges: tuple[Bridge, Bridge], run: Run) -> None:
    """Its copies of what was scheduled are the only ones: nothing says how to remove them."""
    source, target = bridges
    with client_of(source) as client, client.get_queue_sender("ended") as sender:
        sender.schedule_messages(ServiceBusMessage("later"), DUE)
    assert run("beside").code == 0, "the record stays behind finish: it has another one's row"
    said = run("ended")
    assert said.code == 0, said.err
    given = run.said("run", "--renumber", "--give-up", "--yes", "ended")
    assert (given.code, "All is verified of ended" in given.err) == (1, True), given.err
    assert "purge" not in given.out + given.err
    namespace = RemoteAddress.of(source.connection_string).namespace
    assert run.said("finish", "ended", "--yes", namespace).code == 0
    assert run.said("run", "--renumber", "--give-up", "--yes", "ended").code == 1
    assert len(by_old_number(target, "ended")[0]) == 1


def test_what_another_run_holds_is_named_when_a_run_is_given_up(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Also beside what no run holds, of which no copies are to be removed."""
    _, target = bridges
    asyncio.run(hold(target, "held", "another-run"))
    given = run.said("run", "--renumber", "--give-up", "--yes", "held")
    assert (given.code, "'another-run'" in given.err) == (1, True), given.err
    asyncio.run(hold(target, "held", "another-run", is_held=False))
    given = run.said("run", "--renumber", "--give-up", "--yes", "held")
    assert (given.code, given.rows, "holds none of these" in given.err) == (0, [], True), given.err


async def hold(bridge: Bridge, path: str, name: str, *, is_held: bool = True) -> None:
    """Have a run hold an entity, or end that."""
    credential = credential_in(bridge.connection_string)
    assert credential is not None
    address = RemoteAddress.of(bridge.connection_string)
    async with RemoteNamespace(address, credential) as namespace:
        management = namespace.management_of(path)
        await (management.hold(name) if is_held else management.release(name))
