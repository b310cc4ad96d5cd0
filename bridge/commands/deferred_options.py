"""Which deferred messages a command means."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.commands.selection_options import selection_of

if TYPE_CHECKING:
    from bridge.operations.selection import MessageSelection


def deferred_of(arguments: argparse.Namespace) -> MessageSelection:
    """Return what the options ask for of the deferred messages; WrongInput: one is wrong."""
    return replace(selection_of(arguments), states=frozenset({"deferred"}))
