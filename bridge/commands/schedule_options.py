"""Options that say which scheduled messages a command means, and the search for them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput
from bridge.commands.looking import Looking
from bridge.commands.message_path import path_in
from bridge.commands.output import Output
from bridge.commands.selection_options import add_selection, selection_of, time_in

if TYPE_CHECKING:
    from bridge.operations.scheduled_selection import ScheduledSelection
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage


def add_scheduled(parser: argparse.ArgumentParser, *, limit: str) -> None:
    """Add the entity, and which of its scheduled messages are meant.

    Args:
        limit: what the limit bounds, as "how many to move at most".
    """
    parser.add_argument(
        "entity", metavar="ENTITY", help="a queue or a topic: a topic's are none of a subscription"
    )
    add_selection(parser, limit=limit, has_times=False)
    parser.add_argument(
        "--due-from", metavar="TIME", help="those due then or later: 2026-11-28T00:00:00Z"
    )
    parser.add_argument("--due-before", metavar="TIME", help="those due before")
    parser.add_argument(
        "--from", type=int, metavar="NUMBER", dest="first", help="those of this number or above"
    )
    parser.add_argument(
        "--through", type=int, metavar="NUMBER", dest="last", help="those of this number or below"
    )


def scheduled_path(words: Sequence[str]) -> str:
    """Return the path of an entity; WrongInput: it has no scheduled messages.

    Args:
        words: see `path_in`.
    """
    path = path_in(words)
    if "/" in path and ("/subscriptions/" in path.lower() or "/$" in path):
        raise WrongInput(f"{path}: scheduled messages are in a queue or a topic.")
    return path


def scheduled_of(arguments: argparse.Namespace) -> ScheduledSelection:
    """Return what the options ask for; WrongInput: one cannot be used."""
    from bridge.operations.scheduled_selection import ScheduledSelection

    found = selection_of(arguments)
    return ScheduledSelection(
        found.condition,
        numbers=found.numbers,
        due_from_ms=time_in("--due-from", arguments.due_from),
        due_before_ms=time_in("--due-before", arguments.due_before),
        first=arguments.first,
        last=arguments.last,
    )


class ScheduledSearch:
    """The scheduled messages that are meant, by number, with the times at which they are due.

    Attributes:
        due_ms: the time of each, UTC ms, by its sequence number, in order.
        looking: how it went.
    """

    def __init__(
        self,
        output: Output,
        management: RemoteManagement,
        selection: ScheduledSelection,
        limit: int | None,
    ) -> None:
        self.due_ms: dict[int, int] = {}
        self.looking = Looking(
            output, management, selection, first=selection.first or 1, limit=limit
        )

    async def run(self) -> None:
        """Look for them; raises RemoteError when the first page was refused."""
        await self.looking.run(self._take, "looking for scheduled messages")
        self.looking.say_failures()

    def _take(self, messages: Sequence[RemoteMessage]) -> None:
        for each in messages:
            self.due_ms[int(each.sequence_number or 0)] = int(each.scheduled_enqueue_time_ms or 0)
