"""Which namespace a command works on."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bridge.commands import profile
from bridge.commands.errors import WrongInput
from bridge.commands.profile import Profile, Profiles
from bridge.commands.target import NamespaceLogin, add_target, target_of
from bridge.remote.credentials import SharedKey, SharedSignature

KEY = "c2VjcmV0PT0="


def string_of(host: str, more: str = "") -> str:
    """Return a connection string of Microsoft's."""
    return f"Endpoint=sb://{host}/;SharedAccessKeyName=root;SharedAccessKey={KEY}{more}"


def target(*words: str, **environment: str) -> NamespaceLogin:
    """Return what options and environment name."""
    parser = argparse.ArgumentParser()
    add_target(parser)
    return target_of(parser.parse_args(words), environment)


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A folder with two profiles, of which `prod` is used."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    each = [
        Profile(name="prod", variable="PROD", websocket=True, custom_endpoint_address="gate:444"),
        Profile(name="test", stored=string_of("test.example")),
    ]
    by_name = {one.name: one for one in each}
    profile.write(profile.path_of(environment), Profiles(by_name, current="prod"))
    return str(tmp_path)


def test_without_any_profile_it_is_the_bridge_of_this_machine(tmp_path: Path) -> None:
    """With the emulator's key and ports; the port of the bridge is that of its own variable."""
    found = target(XDG_CONFIG_HOME=str(tmp_path))
    assert (found.name, found.address.host, found.address.port) == ("local", "localhost", 5672)
    assert (found.address.tls, found.address.administration_port) == (False, 5300)
    assert isinstance(found.credential, SharedKey)
    moved = target(XDG_CONFIG_HOME=str(tmp_path), BUSBRIDGE_PORT="5673").address
    assert (moved.port, moved.administration_port) == (5673, 5673)


def test_an_option_comes_before_the_variable_and_that_before_the_profile_in_use(
    config: str,
) -> None:
    """As docs/commands.md lists them."""
    environment = {
        "XDG_CONFIG_HOME": config,
        "PROD": string_of("prod.example"),
        "OTHER": string_of("other.example"),
    }
    assert target(**environment).address.namespace == "prod.example"
    named = target(**environment, BUSBRIDGE_NAMESPACE="test")
    assert named.address.namespace == "test.example"
    assert target("-n", "prod", **environment, BUSBRIDGE_NAMESPACE="test").name == "prod"
    other = target("--connection-string-variable", "OTHER", **environment)
    assert other.address.namespace == "other.example"
    assert target("-n", "local", **environment).address.host == "localhost"


def test_a_profile_brings_the_way_to_its_namespace_and_options_change_it(config: str) -> None:
    """A custom endpoint, a CA file, WebSockets."""
    environment = {"XDG_CONFIG_HOME": config, "PROD": string_of("prod.example")}
    found = target(**environment).address
    assert (found.host, found.port, found.transport) == ("gate", 444, "websocket")
    ca = Path(__file__)
    changed = target(
        "--custom-endpoint-address", "other:445", "--ca-file", str(ca), **environment
    ).address
    assert (changed.host, changed.port, changed.ca_file) == ("other", 445, ca)


@pytest.mark.parametrize(
    ("text", "host", "port", "administration_url"),
    [
        (string_of("a.servicebus.windows.net"), "a.servicebus.windows.net", 5671, "https://a.servicebus.windows.net"),
        (string_of("a.example", ";EntityPath=orders"), "a.example", 5671, "https://a.example"),
        (string_of("localhost", ";UseDevelopmentEmulator=true;"), "localhost", 5672, "http://localhost:5300"),
        (string_of("localhost:5673", ";UseDevelopmentEmulator=true;"), "localhost", 5673, "http://localhost:5673"),
        (string_of("bus.example:5671"), "bus.example", 5671, "https://bus.example:5671"),
        (string_of("[::1]:5671"), "::1", 5671, "https://[::1]:5671"),
    ],
)  # fmt: skip
def test_each_form_of_microsofts_connection_strings(
    text: str, host: str, port: int, administration_url: str
) -> None:
    """And a bridge's, which has all at one port."""
    found = target("--connection-string-variable", "IT", IT=text)
    address = found.address
    assert (address.host, address.port) == (host, port)
    assert address.administration_url == administration_url
    assert KEY not in repr(found)


def test_a_signature_is_a_login_too() -> None:
    """Made by somebody who has the key."""
    text = "Endpoint=sb://a.example/;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1"
    found = target("--connection-string-variable", "IT", IT=text)
    assert isinstance(found.credential, SharedSignature)


def test_a_connection_string_is_no_options_value(config: str) -> None:
    """Others can see it in the list of processes; the sentence does not repeat it."""
    with pytest.raises(WrongInput, match="others can see") as refused:
        target("-n", string_of("a.example"), XDG_CONFIG_HOME=config)
    assert KEY not in str(refused.value)


def test_an_unknown_profile_is_refused_with_those_that_there_are(config: str) -> None:
    """From the variable as from the option."""
    for words, environment in ((("-n", "prd"), {}), ((), {"BUSBRIDGE_NAMESPACE": "prd"})):
        with pytest.raises(WrongInput, match="'prd'; there are: local, prod, test"):
            target(*words, XDG_CONFIG_HOME=config, **environment)
