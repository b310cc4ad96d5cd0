"""`busbridge relay check` and `init`, against a bridge, and a tap before it that plays Azure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient

from bridge.cli.main import main
from bridge.relay.inspection.inspection import PATIENCE
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, send, unique
from tests.conformance.door import connection_string
from tests.fixtures.administration import KEY
from tests.fixtures.bridge import Bridge
from tests.fixtures.tap import forget_source, tap_in_thread

WINDOW = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT1M"}
ENTITIES: dict[str, dict[str, Any]] = {
    "orders": {},
    "sessions": {"RequiresSession": True},
    "sales-eu": {},
    "sales-us": {},
    "target-eu": {},
    "target": {},
    "once": WINDOW,
    "forwards": {"ForwardTo": "target"},
}
TOPICS = [
    {"Name": "events", "Subscriptions": [{"Name": "out"}]},
    {"Name": "copies", "Subscriptions": [{"Name": "out"}]},
]

RULE_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture(scope="module")
def azure(bridge: Bridge) -> Iterator[str]:
    """The connection string of the bridge's entities, as if they were Azure's."""
    with tap_in_thread(bridge.port) as found:
        found.when("attach", forget_source, times=1_000_000)
        yield connection_string(found.port)


@dataclass
class Relay:
    """The commands, with a file of two sides."""

    path: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, verb: str, routes: str, *options: str, head: str = "") -> Said:
        """Run a command on a file with these routes."""
        sides = '[sides.azure]\nenv = "AZURE"\nid = "azure"\n'
        sides += '[sides.local]\nfile = "local"\nid = "local"\n'
        self.path.write_text(f"{head}{sides}{routes}")
        self.capsys.readouterr()
        code = main(["relay", verb, str(self.path), "--json", *options])
        out, err = self.capsys.readouterr()
        assert KEY[1] not in out + err
        return Said(code, out, err)

    def found(self, routes: str, *, head: str = "") -> list[tuple[int, str, str]]:
        """Return line, result and text of what a check finds; not what it notes of all routes."""
        said = self("check", routes, head=head)
        rows = [(row["line"], row["result"], row["text"]) for row in said.rows]
        has_errors = any(result == "error" for _, result, _ in rows)
        assert said.code == (3 if has_errors else 0), said
        general = ("Messages can overtake", "The states of sessions stay")
        return [row for row in rows if not row[2].startswith(general)]


@pytest.fixture
def relay(
    bridge: Bridge,
    azure: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Relay:
    """The commands; the variable and the file have the connection strings."""
    monkeypatch.setenv("AZURE", azure)
    (tmp_path / "local").write_text(bridge.connection_string + "\n")
    return Relay(tmp_path / "relay.toml", capsys)


def route(source: str, target: str, *lines: str) -> str:
    """Return the table of a route, in four lines and more."""
    return "\n".join(("[[routes]]", f'from = "{source}"', f'to = "{target}"', *lines, ""))


FROM, TO = 8, 9
"""Lines of the first route."""


def test_a_sound_file_has_nothing_to_say(relay: Relay) -> None:
    """Into a bridge nothing comes twice, and nothing is lost."""
    said = relay("check", route("azure/orders", "local/target"))

    assert said.code == 0
    (row,) = said.rows
    assert row["result"] == "note"
    assert row["route"] == "azure/orders"
    assert "repl-sequence" in said.err
    assert said.err.endswith("0 errors, 0 warnings, 1 note.\n")


def test_what_is_missing_is_named_at_its_place(relay: Relay) -> None:
    """Source, target, and a topic that stands for none of its subscriptions."""
    routes = route("azure/nothing", "local/nowhere") + route("azure/events", "local/orders")

    found = relay.found(routes)

    assert (FROM, "error", "There is no entity azure/nothing.") in found
    assert (TO, "error", "There is no entity local/nowhere: make it first.") in found
    (topic,) = [text for line, _, text in found if line == FROM + 3]
    assert topic.startswith("azure/events is a topic: name a subscription")


def test_a_queue_that_forwards_is_no_source(relay: Relay) -> None:
    """Azure lets nobody receive from a queue that forwards its messages."""
    found = relay.found(route("azure/forwards", "local/orders"))

    assert any(
        line == FROM and result == "error" and "forwards its messages to" in text
        for line, result, text in found
    )


@pytest.mark.parametrize(
    ("source", "target", "duplicates", "fault"),
    [
        ("local/orders", "azure/target", None, "detects no duplicates"),
        ("local/orders", "azure/target", "accept", None),
        ("local/orders", "azure/once", None, "the second would be lost"),
        ("local/orders", "azure/once", "drop", None),
        ("local/once", "azure/once", None, None),
        ("azure/orders", "local/target", None, None),
        ("azure/orders", "local/once", None, "the second would be lost"),
    ],
)
def test_what_would_come_twice_or_be_lost_is_said(
    relay: Relay, source: str, target: str, duplicates: str | None, fault: str | None
) -> None:
    """Azure does not know a relay; a bridge does."""
    lines = () if duplicates is None else (f'duplicates = "{duplicates}"',)

    found = [
        text for _, result, text in relay.found(route(source, target, *lines)) if result == "error"
    ]

    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]


def test_the_rights_are_tried_by_attaching(
    relay: Relay,
    bridge: Bridge,
    azure: str,
    admin: ServiceBusAdministrationClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Listen at the source, Send at the target, and Manage there if it is a bridge's."""
    name = unique("rights")
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=rights,
            key_name=key,
            primary_key=RULE_KEY,
            secondary_key=RULE_KEY[::-1],
        )
        for key, rights in (("listens", ["Listen"]), ("sends", ["Send"]))
    ]
    admin.create_queue(name, authorization_rules=rules)

    def as_rule(text: str, rule: str) -> str:
        given, instead = f"SharedAccessKey={KEY[1]}", f"SharedAccessKey={RULE_KEY}"
        return text.replace(KEY[0], rule).replace(given, instead)

    try:
        monkeypatch.setenv("AZURE", as_rule(azure, "sends"))
        (relay.path.parent / "local").write_text(as_rule(bridge.connection_string, "listens"))
        found = relay.found(route(f"azure/{name}", f"local/{name}"))
        assert any(
            line == FROM and text.startswith(f"The right Listen on azure/{name} is missing")
            for line, _, text in found
        )
        assert any(
            line == TO and text.startswith(f"The right Send on local/{name} is missing")
            for line, _, text in found
        )
        monkeypatch.setenv("AZURE", as_rule(azure, "listens"))
        (relay.path.parent / "local").write_text(as_rule(bridge.connection_string, "sends"))
        found = relay.found(route(f"azure/{name}", f"local/{name}"))
        (error,) = [each for each in found if each[1] == "error"]
        assert error[0] == TO
        assert error[2].startswith(f"The right Manage on local/{name} is missing")
        warnings = [each for each in found if each[1] == "warning"]
        assert [each[0] for each in warnings] == [1, 4]
    finally:
        admin.delete_queue(name)


def test_a_wrong_key_is_told_from_a_missing_right(
    relay: Relay, azure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two are different messages, as they are mended in different places."""
    monkeypatch.setenv("AZURE", azure.replace(KEY[1], RULE_KEY))

    found = relay.found(route("azure/orders", "local/target"))

    (error,) = [text for _, result, text in found if result == "error"]
    assert error.startswith("The key of 'azure', or its rule's name, is wrong: ")


def test_a_star_is_what_is_there(relay: Relay) -> None:
    """A target that is missing is an error of its own."""
    said = relay("check", route("azure/sales-*", "local/target-*", 'name = "sales"'))

    errors = [row for row in said.rows if row["result"] == "error"]
    assert [(row["line"], row["route"], row["text"]) for row in errors] == [
        (TO, "sales[sales-us]", "There is no entity local/target-us: make it first.")
    ]
    assert {row["route"] for row in said.rows} == {"sales[sales-eu]", "sales[sales-us]"}


def test_a_star_that_stands_for_nothing_is_warned_of(relay: Relay) -> None:
    """It may come to stand for something later."""
    found = relay.found(route("azure/nothing-*", "local/*"))

    assert found == [(FROM, "warning", "There is no entity azure/nothing-* now.")]


def test_a_circle_is_an_error_or_has_a_rule(relay: Relay) -> None:
    """Through queues, or through topics alone."""
    accept = 'duplicates = "accept"'
    queues = route("azure/orders", "local/orders") + route("local/orders", "azure/orders", accept)
    topics = route("azure/events/Subscriptions/out", "local/events") + route(
        "local/events/Subscriptions/out", "azure/events", accept
    )

    (error,) = [text for _, result, text in relay.found(queues) if result == "error"]
    assert error.startswith("A circle: azure/orders -> local/orders, local/orders -> azure/orders.")
    notes = [text for _, _, text in relay.found(topics)]
    assert len(notes) == 2
    assert "[x-busbridge-relay] IS NULL OR NOT (" in notes[0]


def test_a_circle_through_what_a_namespace_forwards_is_found(
    relay: Relay, admin: ServiceBusAdministrationClient
) -> None:
    """By queues and subscriptions that no route names; of dead letters it is a warning."""
    out, between, target, dying = (unique(each) for each in ("out", "between", "target", "dying"))
    accept = 'duplicates = "accept"'
    back = route(f"local/{out}", "azure/orders", accept)
    made = {
        out: {},
        between: {"forward_to": out},
        dying: {"forward_dead_lettered_messages_to": out},
    }
    for name, options in made.items():
        admin.create_queue(name, **options)
    admin.create_topic(target)
    admin.create_subscription(target, "on", forward_to=between)
    try:
        said = relay.found(route("azure/orders", f"local/{target}") + back)
        (error,) = [text for _, result, text in said if result == "error"]
        assert error.startswith(
            f"A circle: azure/orders -> local/{target}, local/{out} -> azure/orders, "
            f"{target}/Subscriptions/on forwards to {between}, {between} forwards to {out}."
        )
        said = relay.found(route("azure/orders", f"local/{dying}") + back)
        assert [text for _, result, text in said if result == "error"] == []
        found = [(line, text) for line, result, text in said if result == "warning"]
        assert found[0][0] == TO
        assert found[0][1].startswith("A circle of dead letters: ")
        died = relay.found(route(f"local/{dying}/$DeadLetterQueue", "azure/orders", accept))
        forwarded = f"local/{dying}/$DeadLetterQueue is forwarded to "
        errors = [text for _, result, text in died if result == "error"]
        assert any(text.startswith(forwarded) for text in errors), errors
    finally:
        admin.delete_topic(target)
        for name in reversed(made):
            admin.delete_queue(name)


def test_a_filter_stands_better_in_a_rule(relay: Relay) -> None:
    """Of a subscription that keeps what never goes."""
    found = relay.found(
        route(
            "azure/events/Subscriptions/out",
            "local/target",
            "filter = \"colour = 'red'\"",
            'else = "complete"',
        )
    )

    assert [each[:2] for each in found] == [(FROM + 2, "note")]
    assert "rule of the subscription" in found[0][2]


def test_a_dry_run_counts_what_would_go(
    relay: Relay, bridge: Bridge, admin: ServiceBusAdministrationClient
) -> None:
    """By a peek: all of it is there afterwards, and unlocked."""
    name = unique("dry")
    admin.create_queue(name)

    def message(colour: str, **properties: str) -> ServiceBusMessage:
        return ServiceBusMessage("x", application_properties={"colour": colour, **properties})

    try:
        with client_of(bridge) as client:
            send(client, name, *(message("red") for _ in range(3)), message("blue"))
            send(client, name, message("green"), message("red", large="x" * 65_500))
        routes = route(
            f"azure/{name}", "local/target", 'name = "red"', "filter = \"colour = 'red'\"",
            'else = "blue"',
        ) + route(
            f"azure/{name}", "local/orders", 'name = "blue"', "filter = \"colour = 'blue'\"",
            'else = "dead-letter"',
        )  # fmt: skip
        for _ in range(2):
            said = relay("check", routes, "--dry-run")
            assert said.code == 0, said
            red, blue = (row for row in said.rows if "goes" in row)
            assert (red["route"], red["goes"], red["without_own_properties"]) == ("red", 4, 1)
            assert (red["completed"], red["dead_lettered"], red["refused"]) == (0, 1, 0)
            assert (blue["route"], blue["goes"]) == ("blue", 1)
            assert [*blue] == [*red]
    finally:
        admin.delete_queue(name)


def test_the_control_queue_is_made_once(
    relay: Relay, admin: ServiceBusAdministrationClient
) -> None:
    """The check asks for it before, and is content with it afterwards."""
    name = unique("control")
    head = f'control = "local/{name}"\n'
    routes = route("azure/orders", "local/target", 'order = "entity"')

    try:
        (error,) = [each for each in relay.found(routes, head=head) if each[1] == "error"]
        assert error[0] == 1
        assert error[2].startswith(f"There is no control queue local/{name}: make it with")
        made = relay("init", routes, head=head)
        assert made.code == 0, made
        assert made.err == f"The control queue local/{name} is made.\n"
        assert made.row["path"] == name
        assert admin.get_queue(name).requires_session
        again = relay("init", routes, head=head)
        assert (again.code, again.err) == (
            0,
            f"The control queue local/{name} is there already.\n",
        )
        assert relay.found(routes, head=head) == []
    finally:
        admin.delete_queue(name)


def test_a_queue_without_sessions_is_no_control_queue(relay: Relay) -> None:
    """It is somebody's, and stays as it is."""
    head = 'control = "local/orders"\n'
    routes = route("azure/sales-eu", "local/target", 'order = "entity"')

    said = relay("init", routes, head=head)

    assert said.code == 1
    assert "local/orders is no queue with sessions" in said.err
    (error,) = [each for each in relay.found(routes, head=head) if each[1] == "error"]
    assert error[0] == 1


def test_faults_of_the_file_end_the_commands_before_anything_is_asked(relay: Relay) -> None:
    """With the exit code for wrong input."""
    routes = route("azure/orders", "lokal/orders")

    checked = relay("check", routes)
    assert checked.code == 2
    assert checked.row == {
        "line": TO, "column": 6, "result": "error", "route": None,
        "text": "to: there is no side 'lokal' (did you mean local?).",
    }  # fmt: skip
    made = relay("init", routes)
    assert made.code == 2
    assert f"{relay.path}:{TO}:6: to: there is no side 'lokal'" in made.err
    assert not made.out


def test_an_offline_check_asks_no_namespace(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as in a pipeline without secrets of its own."""
    monkeypatch.setenv("AZURE", connection_string(1))

    said = relay("check", route("azure/orders", "local/orders"), "--offline")

    assert (said.code, said.out, said.err) == (0, "", "The file has no fault.\n")


def test_a_namespace_that_is_away_is_named(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side is checked all the same."""
    monkeypatch.setenv("AZURE", connection_string(1))
    began_s = time.monotonic()
    routes = "".join(route(f"azure/{each}", "local/nowhere") for each in ("orders", "a", "b", "c"))

    found = relay.found(routes)

    assert time.monotonic() - began_s < 4 * PATIENCE.total_s  # it is not asked again and again
    assert sum("is not reached" in text for _, _, text in found) == 4
    assert any(line == FROM and "azure/orders is not reached" in text for line, _, text in found)
    assert (TO, "error", "There is no entity local/nowhere: make it first.") in found
