"""`busbridge profile`: the namespaces that commands know by name."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from bridge.commands import profile, target
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import NO_RIGHT, Commands, add_command
from bridge.commands.profile import LOCAL, Profile


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("profile", help="name namespaces, for -n and for every day")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = add_command(
        verbs, "add", "name a namespace, and say where its connection string is to be had",
        run=_add, right=NO_RIGHT,
        examples=(
            "busbridge profile add prod --variable PROD_CONNECTION_STRING",
            "busbridge profile add prod --command 'pass show service-bus/prod'",
        ),
    )  # fmt: skip
    add.add_argument("name", metavar="NAME", help="the profile's name")
    sources = add.add_mutually_exclusive_group(required=True)
    sources.add_argument("--variable", metavar="VARIABLE", help="an environment variable has it")
    sources.add_argument("--file", type=_path, metavar="FILE", help="a file has it")
    sources.add_argument(
        "--command", dest="source_command", metavar="COMMAND",
        help="a command prints it, such as one of a password store; no shell takes part",
    )  # fmt: skip
    sources.add_argument(
        "--entra", metavar="HOST",
        help="there is none: log in to NAME.servicebus.windows.net by Microsoft Entra ID "
        "(needs the extra `azure`)",
    )  # fmt: skip
    add.add_argument(
        "--store-key", action="store_true",
        help="read the connection string now, and keep it in clear in a file that only you can "
        "read (without this, no key is ever written)",
    )  # fmt: skip
    target.add_connection(add.add_argument_group("connection"))

    add_command(
        verbs, "list", "list the profiles; the one with `yes` is used without -n",
        run=_list, right=NO_RIGHT,
        examples=("busbridge profile list", "busbridge profile list --json | jq .name"),
    )  # fmt: skip
    use = add_command(
        verbs, "use", "have commands without -n use this profile",
        run=_use, right=NO_RIGHT,
        examples=("busbridge profile use prod", f"busbridge profile use {LOCAL}"),
    )  # fmt: skip
    use.add_argument("name", metavar="NAME", help=f"a profile; {LOCAL}: this machine's bridge")
    remove = add_command(
        verbs, "remove", "forget a profile, and the key if it is stored; the namespace stays",
        run=_remove, right=NO_RIGHT,
        examples=("busbridge profile remove prod", "busbridge profile remove staging"),
    )  # fmt: skip
    remove.add_argument("name", metavar="NAME", help="the profile's name")


def _path(text: str) -> Path:
    return Path(text).absolute()


async def _add(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.name == LOCAL or "=" in arguments.name or not arguments.name.strip():
        raise WrongInput(f"A profile cannot be called {arguments.name!r}.")
    given = Profile(
        name=arguments.name,
        host=arguments.entra or "",
        variable=arguments.variable or "",
        file=str(arguments.file or ""),
        command=arguments.source_command or "",
        entra=arguments.entra is not None,
        ca_file=str(arguments.ca_file or ""),
        custom_endpoint_address=arguments.custom_endpoint_address or "",
        websocket=arguments.websocket,
    )
    if given.entra and arguments.store_key:
        raise WrongInput("--store-key: a login by Microsoft Entra ID has no key.")
    text = given.connection_string()
    found = target.target(given, text)
    given = replace(given, host=found.address.namespace)
    if arguments.store_key:
        given = replace(given, variable="", file="", command="", stored=text)
    path = profile.path_of()
    profiles = profile.read(path)
    what = "replaced" if given.name in profiles.by_name else "added"
    profile.write(path, profiles.added(given))
    output.say(f"The profile {given.name!r} is {what}: {given.host}, by {given.source}.")
    return ExitCode.DONE


async def _list(arguments: argparse.Namespace, output: Output) -> int:
    profiles = profile.read(profile.path_of())
    used = os.environ.get(target.VARIABLE) or profiles.current
    local = {"name": LOCAL, "host": "localhost", "login": "the emulator's key"}
    rows = [local] + [
        {"name": each.name, "host": each.host, "login": each.source}
        for each in profiles.by_name.values()
    ]
    output.table([{**row, "is_used": row["name"] == used} for row in rows])
    return ExitCode.DONE


async def _use(arguments: argparse.Namespace, output: Output) -> int:
    path = profile.path_of()
    profiles = profile.read(path)
    if arguments.name != LOCAL:
        profiles.named(arguments.name)
    profile.write(path, replace(profiles, current=arguments.name))
    output.say(f"Commands without -n use {arguments.name!r}.")
    if other := os.environ.get(target.VARIABLE):
        output.say(f"But {target.VARIABLE} is set, to {other!r}: it comes first.")
    return ExitCode.DONE


async def _remove(arguments: argparse.Namespace, output: Output) -> int:
    path = profile.path_of()
    profiles = profile.read(path)
    profiles.named(arguments.name)
    profile.write(path, profiles.without(arguments.name))
    output.say(f"The profile {arguments.name!r} is removed.")
    return ExitCode.DONE
