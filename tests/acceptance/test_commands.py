"""The commands on a namespace, as somebody types them, against a bridge: plain, and over TLS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
)

from bridge.cli.main import main
from bridge.remote import administration
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import SharedKey
from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.connecting import without_flag
from tests.acceptance.sdk import client_of, now, send, take, unique
from tests.fixtures.administration import KEY
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.terminal import INTERRUPT, terminal
from tests.fixtures.waiting import eventually

README = Path(__file__).parents[2] / "README.md"
ENTITIES = {"orders": {"LockDuration": "PT30S"}}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}]}]


@pytest.fixture
def plain(bridge: Bridge, make: Make) -> Busbridge:
    """Without TLS, as the emulator."""
    return make(bridge.connection_string)


@pytest.fixture(params=["plain", "admin-port", "tls", "custom-endpoint"])
def busbridge(bridge: Bridge, make: Make, request: pytest.FixtureRequest) -> Busbridge:
    """Each way to the namespace."""
    if request.param == "plain":
        return make(bridge.connection_string)
    if request.param == "admin-port":  # where the emulator administers; one request a connection
        found = make(bridge.connection_string)
        found.options = ("--custom-endpoint-address", bridge.admin_url.removeprefix("http://"))
        return found
    text, options = without_flag(bridge), ("--ca-file", str(bridge.ca))
    if request.param == "custom-endpoint":
        here = f"localhost:{bridge.port}"
        text = text.replace(here, "bus.servicebus.windows.net")
        options += ("--custom-endpoint-address", here)
    found = make(text)
    found.options = options
    return found


@pytest.fixture
def name(admin: ServiceBusAdministrationClient) -> Iterator[str]:
    """A name; the queues and topics of it are deleted at the end."""
    chosen = unique("c")
    yield chosen
    for queue in admin.list_queues():
        if queue.name.startswith(chosen):
            admin.delete_queue(queue.name)
    for topic in admin.list_topics():
        if topic.name.startswith(chosen):
            admin.delete_topic(topic.name)


def test_a_queue_is_made_listed_shown_changed_and_deleted(busbridge: Busbridge, name: str) -> None:
    """Each command writes JSON lines to a pipe."""
    made = busbridge.done(
        *("create", "queue", name, "--lock-duration", "PT30S", "--max-delivery-count", "3"),
        *("--requires-session", "--user-metadata", "<who & why>"),
    ).row
    assert (made["path"], made["kind"], made["lock_duration"]) == (name, "queue", "PT30S")
    assert (made["max_delivery_count"], made["requires_session"]) == (3, True)
    assert made["user_metadata"] == "<who & why>"
    shown = busbridge.done("show", name).row
    assert {key: shown[key] for key in made} == made
    changed = busbridge.done("update", "queue", name, "--lock-duration", "00:01:30").row
    assert (changed["lock_duration"], changed["max_delivery_count"]) == ("PT1M30S", 3)
    rows = busbridge.done("ls", f"{name.upper()}*").rows
    assert [(row["path"], row["kind"], row["active"]) for row in rows] == [(name, "queue", 0)]
    gone = busbridge.done("delete", "queue", name, "--yes")
    assert (gone.out, gone.code) == ("", 0)
    assert f"{name!r}" in gone.err
    assert busbridge.done("ls", f"{name}*").out == ""
    missing = busbridge("show", name)
    assert (missing.code, missing.out) == (1, "")
    assert f"There is no queue {name!r}." in missing.err


def test_a_topic_with_a_subscription_and_rules(
    plain: Busbridge, admin: ServiceBusAdministrationClient, name: str
) -> None:
    """Names as words, or as the path that `ls` shows; the SDK reads the same."""
    path = f"{name}/Subscriptions/red"
    plain.done("create", "topic", name)
    plain.done("create", "subscription", name, "red", "--forward-to", "orders")
    plain.done("create", "subscription", f"{name}/Subscriptions/blue")
    plain.done(
        *("create", "rule", name, "red", "new", "--correlation", "Subject=new"),
        *("--property", 'price={"long": 5}', "--property", "colour=red"),
    )
    plain.done(
        *("create", "rule", f"{path}/Rules/sql", "--filter", "price > @least"),
        *("--parameter", '@least={"double": 2.5}', "--action", "SET seen = TRUE"),
    )
    plain.done("delete", "rule", name, "red", "$Default", "--yes")
    plain.done("update", "rule", name, "red", "sql", "--action", "SET seen = FALSE")

    rules = {rule.name: rule for rule in admin.list_rules(name, "red")}
    assert set(rules) == {"new", "sql"}
    assert isinstance(rules["new"].filter, CorrelationRuleFilter)
    assert rules["new"].filter.label == "new"
    assert rules["new"].filter.properties == {"price": 5, "colour": "red"}
    assert rules["sql"].filter.sql_expression == "price > @least"
    assert rules["sql"].filter.parameters == {"@least": 2.5}
    assert rules["sql"].action.sql_expression == "SET seen = FALSE"
    assert admin.get_subscription(name, "red").forward_to.endswith("/orders")

    shown = plain.done("show", name, "red").row
    assert shown["path"] == path
    assert [rule["name"] for rule in shown["rules"]] == ["new", "sql"]
    assert shown["rules"][0]["filter"] == {
        "kind": "correlation",
        "label": "new",
        "properties": {"price": 5, "colour": "red"},
    }
    assert plain.done("show", name).row["subscriptions"] == ["blue", "red"]
    alone = plain.done("show", f"{path}/Rules/sql").row
    assert alone["action"] == "SET seen = FALSE"
    assert shown["created_at"] < alone["created_at"] == shown["rules"][1]["created_at"]
    rows = plain.done("ls", f"{name}*").rows
    assert [row["path"] for row in rows] == [name, f"{name}/Subscriptions/blue", path]


def test_counts_of_messages_are_listed(bridge: Bridge, plain: Busbridge, name: str) -> None:
    """Active, dead-lettered and scheduled ones."""
    plain.done("create", "queue", name)
    with client_of(bridge) as client:
        send(client, name, "one", "two", "three")
        with client.get_queue_receiver(name) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=120)
            receiver.dead_letter_message(message, reason="test")
        with client.get_queue_sender(name) as sender:
            sender.schedule_messages(ServiceBusMessage("later"), now() + timedelta(hours=1))
    counts = ("active", "dead_letter", "scheduled")
    eventually(lambda: [plain.done("ls", name).row[each] for each in counts] == [2, 1, 1])
    refused = plain("delete", "queue", name)
    assert refused.code == 2
    assert "with 4 messages? There is no terminal to ask at: give --yes." in refused.err
    assert plain.done("show", name).row["active"] == 2


def test_what_is_of_another_kind_is_not_deleted(plain: Busbridge) -> None:
    """A topic is no queue, though they share their names."""
    refused = plain("delete", "queue", "events", "--yes")
    assert refused.code == 1
    assert "There is no queue 'events'." in refused.err
    assert plain.done("show", "events").row["kind"] == "topic"


def test_the_namespaces_own_words_are_shown(plain: Busbridge) -> None:
    """Of what it refuses."""
    refused = plain("create", "queue", "orders")
    assert (refused.code, refused.out) == (1, "")
    assert "SubCode=40900" in refused.err or "already exists" in refused.err


def test_access_rules_survive_an_update_and_their_keys_are_not_shown(
    plain: Busbridge, admin: ServiceBusAdministrationClient, name: str
) -> None:
    """Names and rights are."""
    key = "a-key-that-nobody-sees-in-any-output"
    rule = AuthorizationRule(
        key_name="reader", rights=["Listen"], primary_key=key, secondary_key=key,
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
    )  # fmt: skip
    admin.create_queue(name, authorization_rules=[rule])
    changed = plain.done("update", "queue", name, "--max-delivery-count", "7")
    shown = plain.done("show", name)
    assert shown.row["access_rules"] == [{"name": "reader", "rights": ["Listen"]}]
    assert key not in changed.out + changed.err + shown.out + shown.err
    (kept,) = admin.get_queue(name).authorization_rules
    assert (kept.key_name, kept.primary_key) == ("reader", key)


async def test_more_entities_than_a_page_has(
    bridge: Bridge,
    admin: ServiceBusAdministrationClient,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every one once."""
    monkeypatch.setattr(administration, "PAGE", 2)
    for number in range(5):
        admin.create_queue(f"{name}-{number}")
    address = RemoteAddress.of(bridge.connection_string)
    async with RemoteAdministration(address, SharedKey(*KEY)) as namespace:
        found = [each.name async for each in namespace.queues()]
        assert (await namespace.namespace()).tier == "Standard"
    assert sorted(found) == sorted({queue.name for queue in admin.list_queues()})


def test_a_certificate_that_is_not_trusted_is_refused(bridge: Bridge, make: Make) -> None:
    """The sentence names the option; there is none that skips the check."""
    refused = make(without_flag(bridge))("ls")
    assert (refused.code, refused.out) == (1, "")
    assert "--ca-file" in refused.err
    assert refused.err.count("\n") == 1


def test_a_key_without_the_right_is_told_which_one_it_needs_and_a_wrong_key_that_it_is(
    start_bridge: StartBridge, tmp_path: Path, make: Make
) -> None:
    """Neither is shown."""
    rules = tmp_path / "rules.json"
    rule = {"name": "listener", "primaryKey": "only-listens", "rights": ["Listen"]}
    rules.write_text(json.dumps({"rules": [rule]}))
    bridge = start_bridge("--auth", str(rules))
    wrong = "The key, or the name of its rule, is wrong: look at the connection string."
    for key, words, remedy in (
        ("only-listens", ("ls",), "This command needs the right Manage on the namespace."),
        (
            "only-listens",
            ("send", "orders", "a"),
            "This command needs the right Send on the entity.",
        ),
        ("wrong-one", ("ls",), wrong),
    ):
        place = (
            f"Endpoint=sb://localhost:{bridge.port};SharedAccessKeyName=listener;"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )
        refused = make(place)(*words)
        assert (refused.code, refused.out) == (1, "")
        assert remedy in refused.err
        assert key not in refused.err


@pytest.mark.usefixtures("plain")
def test_the_bridge_of_this_machine_needs_no_profile(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its port is that of its own variable."""
    monkeypatch.setenv("BUSBRIDGE_PORT", str(bridge.port))
    assert main(["show", "orders"]) == 0
    assert json.loads(capsys.readouterr().out)["lock_duration"] == "PT30S"


@pytest.mark.long
def test_the_first_page_of_the_readme(
    bridge: Bridge, plain: Busbridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each command of the page does what the page says, all in one shell."""
    section = README.read_text().split("## Look, send, find what is dead\n")[1]
    block = section.split("\n\n")[1]
    commands = [line for line in block.splitlines() if line.strip().startswith("busbridge ")]
    assert len(commands) == 8
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "busbridge"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bridge.cli.command "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("BUSBRIDGE_PORT", str(bridge.port))
    done = subprocess.run(
        ["sh", "-ec", "\n".join(commands)], cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    orders = [row for row in rows if row.get("path") == "orders"]
    messages = [row for row in rows if "body" in row]
    assert [(row["active"], row["dead_letter"]) for row in orders] == [(0, 0), (0, 1)]
    assert {row["body"] for row in messages} == {"two apples"}
    assert messages[-1]["application_properties"]["DeadLetterReason"] == "rotten"
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        (message,) = take(receiver)
    assert (str(message), message.subject) == ("two apples", "order")


def test_watching_writes_what_changes_until_it_is_interrupted(
    bridge: Bridge, plain: Busbridge, name: str
) -> None:
    """All rows are written first, then changed counts and deleted entities; the exit code is 0."""
    plain.done("create", "queue", f"{name}-a")
    plain.done("create", "queue", f"{name}-b")
    with plain.start("ls", f"{name}*", "--watch", "0.2") as process:
        try:
            assert process.stdout is not None
            rows = map(json.loads, process.stdout)
            assert [next(rows)["path"], next(rows)["path"]] == [f"{name}-a", f"{name}-b"]
            with client_of(bridge) as client:
                send(client, f"{name}-a", "hello")
            row = next(row for row in rows if row.get("active"))
            assert (row["path"], row["active"]) == (f"{name}-a", 1)
            plain.done("delete", "queue", f"{name}-b", "--yes")
            row = next(row for row in rows if row.get("is_gone"))
            assert row["path"] == f"{name}-b"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()
    with client_of(bridge) as client, client.get_queue_receiver(f"{name}-a") as receiver:
        take(receiver)


@pytest.mark.parametrize(
    ("answer", "code", "is_there"), [("n\n", 1, True), (INTERRUPT, 1, True), ("y\n", 0, False)]
)
def test_at_a_terminal_there_are_tables_and_questions(
    plain: Busbridge, name: str, answer: str, code: int, is_there: bool
) -> None:
    """Nothing is deleted by a no, nor by an interruption."""
    plain.done("create", "queue", name)
    with terminal(plain.line("ls", f"{name}*")) as shown:
        assert shown.code() == 0
    assert "dead letter" in shown.text
    assert '"path"' not in shown.text

    with terminal(plain.line("delete", "queue", name)) as asked:
        asked.awaits("with 0 messages? [y/N]")
        asked.type(answer)
        assert asked.code() == code
    assert f"Delete the queue {name!r}" in asked.text
    assert bool(plain.done("ls", name).rows) is is_there


@pytest.mark.parametrize(("no_color", "reds"), [("", 1), ("1", 0)])
def test_dead_letters_are_red_at_a_terminal(
    bridge: Bridge,
    plain: Busbridge,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    no_color: str,
    reds: int,
) -> None:
    """Only where there are any, and NO_COLOR says no."""
    monkeypatch.setenv("NO_COLOR", no_color)
    plain.done("create", "queue", f"{name}-a")
    plain.done("create", "queue", f"{name}-b")
    plain.done("send", f"{name}-a", "m")
    plain.done("receive", f"{name}-a", "--settle", "dead-letter", "--wait", "120")
    eventually(lambda: plain.done("ls", f"{name}-a").row["dead_letter"] == 1)
    with terminal(plain.line("ls", f"{name}*")) as shown:
        assert shown.code() == 0
    assert shown.raw.count("\x1b[1;31m") == reds


def test_watching_at_a_terminal_draws_the_table_again_until_it_is_interrupted(
    plain: Busbridge, name: str
) -> None:
    """In place of the one before, as counts change; an interruption is its usual end."""
    plain.done("create", "queue", name)
    with terminal(plain.line("ls", name, "--watch", "0.2")) as shown:
        shown.awaits(lambda text: text.count("dead letter") > 2)
        plain.done("send", name, "m", "--repeat", "77")
        shown.awaits(" 77 ")
        shown.type(INTERRUPT)
        assert shown.code() == 0
    rows = [line for line in shown.lines if line.split()[:1] == [name]]
    assert len(rows) == 1
    assert " 77 " in rows[0]
    assert sum("dead letter" in line for line in shown.lines) == 1
    assert sum(line == "stopping; interrupt again to stop at once" for line in shown.lines) == 1
