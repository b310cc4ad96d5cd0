"""The options of commands on the two namespaces of a migration."""

from __future__ import annotations

import argparse

from bridge.commands.errors import WrongInput
from bridge.commands.target import NamespaceLogin, target_named


def add_sides(parser: argparse.ArgumentParser) -> None:
    """Add the entities that are meant, and the profiles of both namespaces."""
    parser.add_argument(
        "entity", nargs="*", metavar="ENTITY",
        help="which paths, as 'orders*'; a topic's name takes its subscriptions (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--from", required=True, dest="source", metavar="PROFILE", help="the profile of the source"
    )
    parser.add_argument(
        "--to", required=True, dest="target", metavar="PROFILE", help="the profile of the target"
    )


def add_renumber(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add the option for targets that have given numbers themselves."""
    parser.add_argument("--renumber", action="store_true", help=help_text)


def sides_of(arguments: argparse.Namespace) -> tuple[NamespaceLogin, NamespaceLogin]:
    """Return source and target.

    Raises:
        WrongInput: a profile cannot be had or used, or both are one namespace.
        ModuleNotFoundError: a profile is of Microsoft Entra ID, and azure-identity is missing.
    """
    source, target = target_named(arguments.source), target_named(arguments.target)
    if source.address.url == target.address.url:
        raise WrongInput(f"{source.name!r} and {target.name!r} are one namespace.")
    return source, target
