"""Which namespace a command works on: its options, and the address and login that they lead to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.commands import profile
from bridge.commands.errors import WrongInput
from bridge.commands.profile import LOCAL, Profile, Profiles

if TYPE_CHECKING:
    from bridge.remote.address import RemoteAddress
    from bridge.remote.credentials import RemoteCredential

VARIABLE = "BUSBRIDGE_NAMESPACE"
"""The variable with the profile's name for who gives no -n."""

PORT_VARIABLE = "BUSBRIDGE_PORT"
"""The variable of the port of `busbridge serve`, which leads to the bridge of this machine."""


@dataclass(frozen=True, slots=True)
class NamespaceLogin:
    """A namespace: `name` for people, address and login."""

    name: str
    address: RemoteAddress
    credential: RemoteCredential


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a namespace."""
    group = parser.add_argument_group(
        "namespace", f"Without any: {VARIABLE}, `busbridge profile use`, or else this machine's."
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "-n", "--namespace", metavar="PROFILE",
        help=f"a profile's name; {LOCAL}: the bridge of this machine",
    )  # fmt: skip
    which.add_argument(
        "--connection-string-variable", metavar="VARIABLE",
        help="the environment variable with the connection string",
    )  # fmt: skip
    add_connection(group)


def add_connection(group: argparse._ArgumentGroup) -> None:
    """Add the options of the way to a namespace."""
    group.add_argument(
        "--ca-file", type=lambda text: Path(text).absolute(), metavar="FILE",
        help="certificates (PEM) of authorities that may have signed the namespace's",
    )  # fmt: skip
    group.add_argument(
        "--custom-endpoint-address", metavar="HOST:PORT",
        help="where to connect to instead, as the SDKs take it",
    )  # fmt: skip
    group.add_argument("--websocket", action="store_true", help="AMQP over WebSockets, at port 443")


def target_of(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> NamespaceLogin:
    """Return the namespace that the options and the environment name.

    Raises:
        WrongInput: there is no such profile, or its connection string cannot be had or used.
        ModuleNotFoundError: a profile is of Microsoft Entra ID, and azure-identity is missing.
    """
    chosen = _chosen(arguments, environment)
    given = Profile(
        name=chosen.name,
        entra=chosen.entra,
        ca_file=str(arguments.ca_file or chosen.ca_file),
        custom_endpoint_address=(
            arguments.custom_endpoint_address or chosen.custom_endpoint_address
        ),
        websocket=arguments.websocket or chosen.websocket,
    )
    return target(given, chosen.connection_string(environment))


def target_named(name: str, environment: Mapping[str, str] = os.environ) -> NamespaceLogin:
    """Return the namespace of a profile's name, for a command that works on two of them.

    Raises:
        WrongInput, ModuleNotFoundError: see `target_of`.
    """
    chosen = _named(name, profile.read(profile.path_of(environment)), environment)
    return target(chosen, chosen.connection_string(environment))


def target(given: Profile, text: str) -> NamespaceLogin:
    """Return the namespace of a profile, whose connection string (or host) was read.

    Raises:
        WrongInput, ModuleNotFoundError: see `target_of`.
    """
    from bridge.remote.address import RemoteAddress
    from bridge.remote.credentials import EntraToken, credential_in

    if given.ca_file and not Path(given.ca_file).is_file():
        raise WrongInput(f"--ca-file: there is no file {given.ca_file!r}.")
    try:
        address = RemoteAddress.of(
            text,
            custom_endpoint_address=given.custom_endpoint_address or None,
            ca_file=given.ca_file or None,
            websocket=given.websocket,
        )
        credential: RemoteCredential | None = credential_in(text)
    except ValueError as error:
        raise WrongInput(f"The namespace {given.name!r}: {error}") from None
    if given.entra:
        credential = EntraToken.of_environment()
    if credential is None:
        raise WrongInput(
            f"The connection string of {given.name!r} has neither SharedAccessKey nor "
            "SharedAccessSignature."
        )
    return NamespaceLogin(given.name, address, credential)


def is_local(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the options, the environment and the profiles name no other than this machine's."""
    try:
        return _chosen(arguments, environment).name == LOCAL
    except (WrongInput, AttributeError):
        return False


def _chosen(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Profile:
    """Return the profile that is asked for, by the first of option, variable, and file."""
    if name := arguments.connection_string_variable:
        return Profile(name=name, variable=name)
    profiles = profile.read(profile.path_of(environment))
    name = arguments.namespace or environment.get(VARIABLE) or profiles.current
    return _named(name, profiles, environment)


def _named(name: str, profiles: Profiles, environment: Mapping[str, str]) -> Profile:
    if "=" in name:
        raise WrongInput(
            "A connection string has a key, and others can see a command's options: give "
            "--connection-string-variable, or add a profile."
        )
    return _local(environment) if name == LOCAL else profiles.named(name)


def _local(environment: Mapping[str, str]) -> Profile:
    """Return the bridge of this machine, with the key that a bridge on loopback has."""
    from bridge.model.access_rules import WELL_KNOWN_RULE as RULE

    port = environment.get(PORT_VARIABLE, "")
    host = f"localhost:{port}" if port else "localhost"
    text = (
        f"Endpoint=sb://{host};SharedAccessKeyName={RULE.name};"
        f"SharedAccessKey={RULE.primary_key};UseDevelopmentEmulator=true;"
    )
    return Profile(name=LOCAL, host=host, stored=text)
