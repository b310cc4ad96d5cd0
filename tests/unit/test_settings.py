"""Options of `busbridge serve`, where the value alone decides."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bridge.cli import sidecar
from bridge.cli.main import main
from bridge.cli.settings import SettingsError, read_settings
from bridge.cli.variables import unknown_variables


@pytest.mark.parametrize(
    ("host", "is_loopback", "for_clients"),
    [
        ("127.0.0.1", True, "localhost"),
        ("127.8.8.8", True, "127.8.8.8"),
        ("::1", True, "localhost"),
        ("localhost", True, "localhost"),
        ("0.0.0.0", False, "localhost"),
        ("::", False, "localhost"),
        ("192.0.2.7", False, "192.0.2.7"),
        ("2001:db8::7", False, "[2001:db8::7]"),
        ("bus.example", False, "bus.example"),
    ],
)
def test_a_host_is_loopback_or_not(host: str, is_loopback: bool, for_clients: str) -> None:
    """The well-known key depends on it; clients get the host as a URL takes it."""
    settings = read_settings(argparse.Namespace(host=host), {})

    assert settings.is_loopback is is_loopback
    assert settings.host_for_clients == for_clients


def test_an_option_wins_over_its_variable() -> None:
    """And what neither says has its default."""
    environment = {"BUSBRIDGE_HOST": "::1", "BUSBRIDGE_PORT": "7"}
    settings = read_settings(argparse.Namespace(host="127.0.0.1"), environment)

    assert settings.host == "127.0.0.1"
    assert (settings.port.number, settings.port.was_asked_for) == (7, True)
    assert (settings.admin_port.number, settings.admin_port.was_asked_for) == (5300, False)
    assert settings.tier is None


def test_the_drain_is_whole_seconds() -> None:
    """0 for none, an hour at most."""
    assert read_settings(argparse.Namespace(), {}).drain_s == 4
    assert read_settings(argparse.Namespace(), {"BUSBRIDGE_DRAIN": "0"}).drain_s == 0
    assert read_settings(argparse.Namespace(drain="3600"), {}).drain_s == 3_600
    for wrong in ("-1", "3601", "1.5", "long"):
        with pytest.raises(SettingsError, match="--drain takes a number from 0 to 3600"):
            read_settings(argparse.Namespace(drain=wrong), {})


def test_ports_of_tls_alone() -> None:
    """Several may be asked for; none is taken unasked without a certificate that was given."""
    both = read_settings(argparse.Namespace(tls_port="5671, 443"), {})
    none = read_settings(argparse.Namespace(), {})

    assert [(each.number, each.was_asked_for) for each in both.tls_ports] == [
        (5671, True),
        (443, True),
    ]
    assert none.tls_ports == ()


def test_session_entities_are_made_with_four_shards_unless_said_otherwise() -> None:
    """1 to 64, by option or variable; anything else is refused by name."""
    assert read_settings(argparse.Namespace(), {}).session_shards == 4
    assert read_settings(argparse.Namespace(session_shards="1"), {}).session_shards == 1
    said = {"BUSBRIDGE_SESSION_SHARDS": "64"}
    assert read_settings(argparse.Namespace(), said).session_shards == 64
    for wrong in ("0", "65", "many"):
        with pytest.raises(SettingsError, match="--session-shards"):
            read_settings(argparse.Namespace(session_shards=wrong), {})


def test_a_sidecar_heeds_nothing_of_a_gateway_s() -> None:
    """Neither its variables, which may stand in a shared environment, nor its options."""
    environment = {
        "BUSBRIDGE_TLS_PORT": "https",
        "BUSBRIDGE_AUTH": "/nowhere",
        "BUSBRIDGE_ADMIN_PORT": "1234",
    }
    with pytest.raises(SettingsError):
        read_settings(argparse.Namespace(), environment)
    settings = read_settings(argparse.Namespace(), environment, sidecar.OPTIONS)
    assert (settings.tls_ports, settings.auth) == ((), None)
    assert settings.admin_port.number == 1234
    for option in ("--port", "--auth", "--tls-cert", "--connections-max"):
        with pytest.raises(SystemExit, match="2"):
            main(["sidecar", option, "1"])


def test_the_help_of_a_sidecar_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """With the variables, and without those of a gateway."""
    with pytest.raises(SystemExit, match="0"):
        main(["sidecar", "--help"])
    said = capsys.readouterr().out
    for option in sidecar.OPTIONS:
        assert f"--{option} " in said
        assert f"$BUSBRIDGE_{option.upper().replace('-', '_')}" in said.replace("\n", "")
    assert "--tls" not in said


def test_the_own_certificate_is_for_the_address_that_is_listened_on() -> None:
    """Clients are told that address, and not `localhost`, which does not lead there."""
    settings = read_settings(argparse.Namespace(host="127.0.0.2", tls_name="bus"), {})
    assert settings.certificate_names == ("bus", "127.0.0.2")
    assert read_settings(argparse.Namespace(host="::1"), {}).certificate_names == ()


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    """It is said to be one, not to be missing."""
    for option in ("config", "auth"):
        with pytest.raises(SettingsError, match=f"--{option}: .*is a folder"):
            read_settings(argparse.Namespace(**{option: str(tmp_path)}), {})


def test_variables_that_are_none_of_the_bridge_s() -> None:
    """A slip of the pen is named with what was meant; those of the tests are known."""
    environment = {
        "BUSBRIDGE_CONFG": "x",
        "BUSBRIDGE_WHATEVER_ELSE": "x",
        "BUSBRIDGE_CONFIG": "x",
        "BUSBRIDGE_NAMESPACE": "x",
        "BUSBRIDGE_TEST_RABBITMQ": "x",
        "BUSBRIDGE_PARITY_RABBITMQ": "x",
        "BUSBRIDGE_FAILPOINT": "x",
        "BUSBRIDGE_UPDATE_GOLDEN": "x",
        "PATH": "x",
    }
    assert unknown_variables(environment) == {
        "BUSBRIDGE_CONFG": "BUSBRIDGE_CONFIG",
        "BUSBRIDGE_WHATEVER_ELSE": "",
    }


@pytest.mark.parametrize(
    ("arguments", "usage", "told"),
    [
        (["serve", "--confg", "x"], "usage: busbridge serve ", "--confg (did you mean --config?)"),
        (["sidecar", "--admin-prt=1"], "usage: busbridge sidecar ", "did you mean --admin-port?"),
        (
            ["policies", "remove", "--managemnt-url", "x"],
            "usage: busbridge policies remove ",
            "did you mean --management-url?",
        ),
        (["serve", "more"], "usage: busbridge serve ", "more"),
    ],
)
def test_an_unknown_option(
    capsys: pytest.CaptureFixture[str], arguments: list[str], usage: str, told: str
) -> None:
    """The usage is that of the command, and the most similar option is named."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    said = capsys.readouterr().err
    assert said.startswith(usage)
    assert told in said.splitlines()[-1]


def test_a_virtual_host_is_the_bridges_own_by_its_owners_word_alone() -> None:
    """Anything but yes and no is refused: it decides whether users' queues are taken."""
    assert not read_settings(argparse.Namespace(), {}).owns_vhost
    assert read_settings(argparse.Namespace(own_vhost="yes"), {}).owns_vhost
    assert not read_settings(argparse.Namespace(), {"BUSBRIDGE_OWN_VHOST": "no"}).owns_vhost
    with pytest.raises(SettingsError, match="--own-vhost takes yes or no, not 'maybe'"):
        read_settings(argparse.Namespace(own_vhost="maybe"), {})
