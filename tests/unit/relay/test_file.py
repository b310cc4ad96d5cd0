"""A relay's file: what it says, and each of its faults with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.relay.plan import keys
from bridge.relay.plan.faults import FaultyFile
from bridge.relay.plan.route import Place, Route
from bridge.relay.plan.side import Side
from tests.unit.relay.files import AZURE, LOCAL, LOGIN, SIDES, file_of, reading, route

HEAD = 'control = "local/locks"\n'
"""One line, in front of all tables."""


def faults(text: str, **options: bool) -> list[str]:
    """Return the faults of a file, each with its place."""
    return [str(each) for each in reading(text, **options).faults]


def test_a_file_says_sides_and_routes() -> None:
    """With what is left out as the documentation says."""
    found = reading(
        HEAD
        + SIDES
        + 'id = "here"\nca-file = "ca.pem"\nwebsocket = true\n'
        + 'custom-endpoint-address = "localhost:1"\n'
        + route("azure/orders", "local/orders")
        + route(
            "local/events/Subscriptions/Audit/$DeadLetterQueue",
            "azure/dead",
            name='"back"',
            filter="\"colour = 'red'\"",
            **{"else": '"dead-letter"'},
            rate="0.5",
            order='"entity"',
            on_refused='"dead-letter"',
            duplicates='"accept"',
            states="true",
            sessions="3",
            credit="7",
            reply_to='{ "a" = "b" }',
        )
        + "outage_s = 1.5\n"
    ).whole()

    azure = Side(
        name="azure",
        id="shop.servicebus.windows.net",
        host="shop.servicebus.windows.net",
        connection_string=AZURE,
    )
    local = Side(
        name="local",
        id="here",
        host="bridge.example.com:5672",
        connection_string=LOCAL,
        ca_file="/etc/ca.pem",
        custom_endpoint_address="localhost:1",
        websocket=True,
    )
    assert found.sides == {"azure": azure, "local": local}
    assert found.control == Place(local, "locks")
    first, second = found.routes
    assert first == Route(
        name="azure/orders", source=Place(azure, "orders"), target=Place(local, "orders")
    )
    assert second.filter is not None
    assert second == Route(
        name="back",
        source=Place(local, "events/Subscriptions/Audit/$DeadLetterQueue"),
        target=Place(azure, "dead"),
        filter=second.filter,
        filter_text="colour = 'red'",
        otherwise="dead-letter",
        rate_per_s=0.5,
        order="entity",
        on_refused="dead-letter",
        duplicates="accept",
        states=True,
        sessions_at_once=3,
        outage_s=1.5,
        credit=7,
        reply_to={"a": "b"},
    )
    assert second.source.is_dead_letter
    assert second.source.is_subscription


def test_no_repr_shows_a_key() -> None:
    """A log may have one of them."""
    found = file_of(route("azure/orders", "local/orders"))

    assert "c2VjcmV0" not in repr(found)


def test_a_login_by_entra_has_a_host_alone() -> None:
    """And no connection string."""
    found = reading(
        SIDES.replace('env = "AZURE"', 'host = "shop.servicebus.windows.net"')
        + route("azure/a", "local/a")
    ).whole()

    side = found.sides["azure"]
    assert (side.entra, side.id, side.connection_string) == (
        True,
        "shop.servicebus.windows.net",
        "",
    )


def test_a_secret_in_the_file_is_refused_unless_it_is_asked_for() -> None:
    """The file is one that people keep in version control."""
    text = SIDES.replace('env = "AZURE"', f'connection-string = "{AZURE}"')
    text += route("azure/a", "local/a")

    (fault,) = faults(text)
    assert fault.startswith("2:21: A key does not belong into this file")
    assert "c2VjcmV0" not in fault
    side = reading(text, allows_inline=True).whole().sides["azure"]
    assert side.connection_string == AZURE


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:5672",
        "bridge",
        "127.0.0.1:5672",
        "[::1]:5672",
        "0.0.0.0",
        "a.localhost",
    ],
)
def test_a_host_that_is_another_one_elsewhere_is_no_id(host: str) -> None:
    """Two machines' `localhost` by one id: each one's messages would be taken for the other's."""
    text = SIDES.replace('env = "AZURE"', f'host = "{host}"') + route("azure/a", "local/a")

    (fault,) = faults(text)
    assert fault.startswith(f"2:8: {host} names another namespace on another machine")
    named = text.replace(f'host = "{host}"', f'host = "{host}"\nid = "shop"')
    assert reading(named).whole().sides["azure"].id == "shop"


@pytest.mark.parametrize("host", ["10.0.0.5:5672", "[fd00::5]", "bridge.example.com", "a.b"])
def test_any_other_host_is_its_own_id(host: str) -> None:
    """With its port."""
    text = SIDES.replace('env = "AZURE"', f'host = "{host}"') + route("azure/a", "local/a")

    assert reading(text).whole().sides["azure"].id == host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[routes]\n", "1:9: This is no TOML"),
        ("", "1:1: There are no sides"),
        (SIDES, "1:1: There are no routes"),
        ("sides = 1\n" + route("a/b", "c/d"), "1:9: There are no sides"),
        ("[sides]\nazure = 1\n", "2:9: Here a table is due."),
        ('colour = "red"\n' + SIDES + route("azure/a", "local/a"), "1:1: There is no key 'colour'"),
        ("[sides.azure]\n", "connection-string or host, and has none."),
        ('[sides.azure]\nenv = "AZURE"\nfile = "x"\n', "or host, and has env and file."),
        ('[sides."a/b"]\nenv = "AZURE"\n', "1:1: A side's name has no '/'"),
        ('[sides.azure]\nenv = "OTHER"\n', "2:7: env: The environment variable OTHER is not set"),
        ('[sides.azure]\nfile = "other"\n', "2:8: file: The file other cannot be read"),
        ('[sides.azure]\nenv = ""\n', "2:7: env: it takes a text that is not empty."),
        ('[sides.azure]\nhost = "sb://a/"\n', "2:8: host: it takes a host's name"),
        (
            '[sides.azure]\nhost = "a:b"\n',
            "2:8: host: The port of the namespace 'a:b' is no number",
        ),
        (
            '[sides.azure]\nenv = "AZURE"\ncustom-endpoint-address = "http://"\n',
            "3:27: custom-endpoint-address: The endpoint 'http://' names no host",
        ),
        ('[sides.azure]\nenv = "AZURE"\nid = "a;b"\n', "3:6: id: 'a;b' is none"),
        ('[sides.azure]\nenv = "AZURE"\nca-file = "x"\n', "3:11: ca-file: There is no file x."),
        ('[sides.azure]\nenv = "AZURE"\nwebsockets = true\n', "(did you mean websocket?)"),
        ('[sides.azure]\nenv = "AZURE"\nwebsocket = 1\n', "3:13: websocket: it takes true or"),
    ],
)
def test_a_fault_of_a_side_has_its_place(text: str, expected: str) -> None:
    """Line and column of the value, or of the key that is missing or unknown."""
    assert any(expected in each for each in faults(text)), faults(text)


@pytest.mark.parametrize(
    ("connection_string", "expected"),
    [
        ("shop.servicebus.windows.net", "It is no connection string"),
        (f"Endpoint=x;{LOGIN}", "The Endpoint of the connection string is no URL"),
        ("Endpoint=sb://x", "It has neither SharedAccessKey nor SharedAccessSignature"),
    ],
)
def test_a_connection_string_that_cannot_be_used_is_named(
    connection_string: str, expected: str
) -> None:
    """Where the file says how it is had; the key is never shown."""
    text = f'[sides.azure]\nconnection-string = "{connection_string}"\n'

    (fault, *_) = [each for each in faults(text, allows_inline=True) if each.startswith("2:")]
    assert fault.startswith("2:21: ")
    assert expected in fault
    assert "c2VjcmV0" not in fault


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('[[routes]]\nfrom = "azure/a"\n', "6:1: The route has no 'to': SIDE/ENTITY."),
        (route("azure", "local/a"), "7:8: from: 'azure' is no place"),
        (route("azuer/a", "local/a"), "7:8: from: there is no side 'azuer' (did you mean azure?)"),
        (route("azure/a*b*", "local/*"), "7:8: from: there is one '*' at most."),
        (route("azure/$a", "local/a"), "7:8: from: The entity name '$a' is not valid"),
        (route("azure/a/$management", "local/a"), "7:8: from: The entity name '$management'"),
        (
            route(f"azure/a/Subscriptions/{'b' * 51}", "local/a"),
            "7:8: from: The subscription name 'bbb",
        ),
        (
            route("azure/a/$Transfer/$DeadLetterQueue", "local/a"),
            "7:8: from: a transfer dead-letter queue",
        ),
        (route("azure/a", "local/a/$DeadLetterQueue"), "8:6: to: a message is sent to a queue"),
        (route("azure/a", "local/a/Subscriptions/b"), "8:6: to: a message is sent to a queue"),
        (route("azure/a", "local/*"), "8:6: to: it has a '*', and `from` has none."),
        (route("azure/a", "azure/b"), "8:6: to: both places are at"),
        (route("azure/a", "local/a", filter='"colour ="'), "9:10: filter: "),
        (route("azure/a", "local/a", filter='"sys.Colour = 1"'), "9:10: filter: "),
        (route("azure/a", "local/a") + 'filter = "a = 1"\n', "filter: say what becomes of"),
        (route("azure/a", "local/a", filter=f'"a = {"1" * 1024}"'), "1,024 are the most."),
        (
            route("azure/a", "local/a", **{"else": '"complete"'}),
            "9:8: else: without a filter there are no others.",
        ),
        (
            route("azure/events/Subscriptions", "local/a"),
            "7:8: from: It names no subscription: TOPIC/Subscriptions/NAME.",
        ),
        (
            route("azure/*/subscriptions/$DeadLetterQueue", "local/a"),
            "7:8: from: It names no subscription",
        ),
        (route("azure/a", "local/a", rate="0"), "9:8: rate: it takes a number from 0.01 to"),
        (route("azure/a", "local/a", rate="true"), "9:8: rate: it takes a number"),
        (route("azure/a", "local/a", credit="1.5"), "9:10: credit: it takes a whole number from 1"),
        (
            route("azure/a", "local/a", order='"session"'),
            '9:9: order: it takes "none" or "entity".',
        ),
        (
            route("azure/a", "local/a", order='"entity"'),
            '9:9: order = "entity" needs a control queue',
        ),
        (
            route("azure/a", "local/a", reply_to='{ "a" = 1 }'),
            "9:12: reply-to: it takes a table of texts",
        ),
        (route("azure/a", "local/a", on_refusd='"stop"'), "9:1: There is no key 'on-refusd' here"),
        (route("azure/a", "local/a", name='"complete"'), "9:8: name: `else` calls something"),
        (route("azure/a", "local/a", name='"a[b]"'), "9:8: name: it has no '['"),
        (
            route("azure/a", "local/a") + route("azure/b", "local/b", name='"azure/a"'),
            "12:8: There is a route 'azure/a' already, at line 6",
        ),
        (
            route("azure/a", "local/a") + route("azure/A", "local/b"),
            "10:8: from: the route 'azure/a' receives from azure/A already",
        ),
        (
            route("azure/a", "local/a", filter='"1=0"', **{"else": '"x"'}),
            "10:8: else: there is no route 'x'.",
        ),
        (
            route("azure/a", "local/a", name='"x"', filter='"1=0"', **{"else": '"y"'})
            + route("azure/b", "local/a", name='"y"'),
            "11:8: else: the route 'y' is from azure/b, not from here.",
        ),
        (
            route("azure/a", "local/a", name='"x"', filter='"1=0"', **{"else": '"y"'})
            + route("azure/a", "local/b", name='"y"', filter='"1=0"', **{"else": '"x"'}),
            "11:8: else: it leads back to 'x'.",
        ),
    ],
)
def test_a_fault_of_a_route_has_its_place(table: str, expected: str) -> None:
    """In the lines behind those of the sides."""
    assert any(expected in each for each in faults(SIDES + table)), faults(SIDES + table)


@pytest.mark.parametrize(
    "place", ["local/a/Subscriptions/b", "local/a*", "local/a/$DeadLetterQueue"]
)
def test_the_control_queue_is_a_queue(place: str) -> None:
    """Neither several nor a part of one."""
    text = f'control = "{place}"\n' + SIDES + route("azure/a", "local/a")

    assert faults(text) == ["1:11: control: it is a queue: SIDE/QUEUE."]


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    """And a file with faults says nothing else."""
    text = SIDES.replace("AZURE", "OTHER") + route("local/a", "azure/b", rate="-1", sessions='"x"')
    found = reading(text)

    assert [each.position.line for each in found.faults] == [2, 9, 10]
    with pytest.raises(FaultyFile) as caught:
        found.whole()
    assert caught.value.faults == found.faults


def test_a_fault_of_a_side_hides_none_of_its_routes() -> None:
    """As in a pipeline without secrets: who has mended the side is not told of others then."""
    text = SIDES.replace("AZURE", "OTHER").replace("local.secret", "other")
    text += route("azure/a*b*", "local/a")
    text += route("azure/a", "local/a/$DeadLetterQueue")
    text += route("azure/a", "local/*", name='"again"')
    text += route("azure/b", "azure/c", order='"entity"')

    found = faults(text)

    assert [each.partition(" ")[0] for each in found] == [
        "2:7:", "5:8:", "7:8:", "11:6:", "13:8:", "14:6:", "18:6:", "19:9:",
    ]  # fmt: skip


def test_a_fault_of_a_target_hides_none_of_its_source() -> None:
    """Two routes share it, whatever is wrong with where one of them leads."""
    text = SIDES + route("azure/a", "lokal/a") + route("azure/a", "local/b", name='"again"')

    found = faults(text)

    assert [each.partition(" ")[0] for each in found] == ["8:6:", "10:8:"]
    assert "receives from azure/a already" in found[1]


def test_an_else_may_name_a_route_that_has_a_fault() -> None:
    """It is told of that, and not of an `else` that leads nowhere."""
    text = SIDES + route("azure/a", "local/a", filter='"1=0"', **{"else": '"rest"'})
    text += route("azuer/a", "local/b", name='"rest"')

    (fault,) = faults(text)

    assert fault.endswith("from: there is no side 'azuer' (did you mean azure?).")


def test_a_chain_of_filters_has_one_route_that_receives() -> None:
    """The others get what the one before them does not take."""
    found = file_of(
        route("azure/a", "local/b", name='"blue"', filter="\"c='b'\"", **{"else": '"rest"'})
        + route("azure/a", "local/r", name='"red"', filter="\"c='r'\"", **{"else": '"blue"'})
        + route("azure/a", "local/rest", name='"rest"')
    )

    assert [each.name for each in found.first_routes] == ["red"]


def test_the_place_of_each_key_of_a_route_is_kept() -> None:
    """For what the namespaces say of it later."""
    found = reading(SIDES + route("azure/a", "local/a", rate="5") + route("local/b", "azure/b"))

    assert str(found.of_route("azure/a")) == "6:1"
    assert str(found.of_route("azure/a", "rate")) == "9:8"
    assert str(found.of_route("local/b", "to")) == "12:6"
    assert str(found.of_route("local/b", "duplicates")) == "10:1"


@pytest.mark.parametrize("key", [*keys.SIDE.values(), *keys.ROUTE.values(), *keys.FILE.values()])
def test_the_example_of_each_key_is_taken(key: keys.Key) -> None:
    """The documentation shows it."""
    sides, table = SIDES, route("azure/b", "local/b", name='"b"')
    if key.name in keys.FILE:
        sides = f"{key.example}\n{SIDES}"
    elif key.name in keys.SOURCES:
        sides = SIDES.replace('env = "AZURE"', key.example)
    elif key.name in keys.SIDE:
        sides = SIDES.replace('env = "AZURE"\n', f'env = "AZURE"\n{key.example}\n')
    elif key.name in ("from", "to"):
        table = f"[[routes]]\n{key.example}\n{'to' if key.name == 'from' else 'from'} = "
        table += '"local/b"\n' if key.name == "from" else '"azure/*"\n'
    else:
        table = '[[routes]]\nfrom = "azure/b"\nto = "local/b"\n' + key.example + "\n"
        table += 'filter = "1=0"\n' if key.name == "else" else ""
        table += 'else = "complete"\n' if key.name == "filter" else ""

    found = faults(HEAD * (key.name == "order") + sides + table, allows_inline=True)

    known = ("is not set", "cannot be read", "no connection string", "neither")
    assert not [each for each in found if not any(text in each for text in known)]


def test_the_files_of_the_documentation_have_no_fault() -> None:
    """Each block of TOML; routes stand behind the last sides before them."""
    page = (Path(__file__).parents[3] / "docs" / "hybrid.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 2
    sides = ""
    for block in blocks:
        if "[sides" in block:
            sides = block.partition("[[routes]]")[0]
            text = block if "[[routes]]" in block else block + route("azure/a", "bus/a")
        else:
            text = sides + block
        text = text.replace("AZURE_SERVICE_BUS", "AZURE")
        text = text.replace("/run/secrets/busbridge", "local.secret")
        assert faults(text.replace('env = "BUSBRIDGE"', 'file = "local.secret"')) == []
