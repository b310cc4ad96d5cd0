"""`busbridge session`: sessions, and their states."""

from __future__ import annotations

from bridge.commands import session_ls, session_state
from bridge.commands.parser import Commands


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("session", help="list sessions; show, set and clear their states")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    session_ls.register(verbs)
    session_state.register(verbs)
