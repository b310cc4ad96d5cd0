"""`busbridge migrate`: a namespace with everything in it, to another one."""

from __future__ import annotations

from bridge.commands import (
    migrate_back,
    migrate_finish,
    migrate_map,
    migrate_plan,
    migrate_run,
    migrate_verify,
)
from bridge.commands.parser import Commands

VERBS = migrate_plan, migrate_run, migrate_verify, migrate_back, migrate_finish, migrate_map
"""Modules with the group's commands."""


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    migrate = commands.add_parser(
        "migrate",
        help="say what it takes to move a namespace, move it, compare two, go back or finish",
    )
    verbs = migrate.add_subparsers(dest="verb", required=True, metavar="VERB")
    for each in VERBS:
        each.register(verbs)
