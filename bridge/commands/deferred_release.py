"""`busbridge deferred release`: deferred messages are received again, as new ones."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bridge.commands.clock import now_ms
from bridge.commands.deferred_options import deferred_of
from bridge.commands.errors import WrongInput
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.selection_options import add_selection
from bridge.commands.taking_options import messages
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.relay.running.outlet import Outlet
    from bridge.remote.delivery import RemoteDelivery


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "release",
        "have deferred messages received again: nothing makes one active, so a copy of each is "
        "sent, with a new number, and the deferred one is then completed; killed in between, a "
        "message may be there twice, unless a bridge is told its identity",
        run=run,
        right="Listen on the entity and Send on the target (with Manage on it, a bridge takes none "
        "twice)",
        examples=(
            "busbridge deferred release orders --number 5 --yes",
            "busbridge deferred release orders --where \"color = 'red'\" --new-id",
        ),
    )
    add_path(parser, has_dead_letter=False)
    parser.add_argument(
        "--to", metavar="ENTITY",
        help="a queue or a topic, or TOPIC/Subscriptions/NAME for this subscription alone, at a "
        "bridge with the right Manage (default: its own queue; a subscription's topic, so all of "
        "its subscriptions)",
    )  # fmt: skip
    add_selection(parser, limit="how many to release at most")
    parser.add_argument(
        "--new-id", action="store_true",
        help="a MessageId that is made of source, number and time; needed where duplicates are "
        "detected",
    )  # fmt: skip
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Release what is meant."""
    from bridge.commands.copy_target import check_duplicates, opened_outlet, target_path
    from bridge.commands.deferred_run import DeferredRun, sessions_by_number
    from bridge.relay.plan.source_identity import source_name
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity)
    if "/$" in path:
        raise WrongInput(f"{path}: messages are released to a queue, or a subscription's topic.")
    to, selection = target_path(path, arguments.to), deferred_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        found, looking = await sessions_by_number(output, management, selection, arguments.limit)
        if (code := looking.end_without("deferred", "released")) is not None:
            return code
        if not arguments.new_id:
            await check_duplicates(target, to, output)
        every = (
            ": every subscription of it whose rules take them gets them"
            if arguments.to is None and to != path
            else ""
        )
        output.confirm(f"Sends {messages(len(found))} of {path}, deferred, anew to {to}{every}.")
        source = source_name(target.address.namespace, path)
        outlet = await opened_outlet(namespace, source, to, output)
        handle = _Sending(outlet, source if arguments.new_id else None)
        releasing = DeferredRun(
            output,
            namespace,
            path,
            found,
            handle,
            done_word="released",
            doubt="A copy may be sent, and the message be deferred still.",
            limit=arguments.limit,
        )
        code = await releasing.run()
        return looking.with_failures(code)


class _Sending:
    """Sends the copy of a message.

    Args:
        id_source: of which new MessageIds are made; `None`: ids stay.
    """

    def __init__(self, outlet: Outlet, id_source: str | None) -> None:
        self._outlet = outlet
        self._id_source = id_source

    async def __call__(self, delivery: RemoteDelivery) -> None:
        """Send it; StaysDeferred: the target has not confirmed it."""
        from bridge.commands.deferred_run import StaysDeferred
        from bridge.operations.changes import MessageChanges, sent_again
        from bridge.operations.lines.scalar_values import ValueRefused
        from bridge.relay.machine.effects import Accepted, Refused
        from bridge.relay.plan.source_identity import derived_message_id

        message = delivery.message
        number = int(message.sequence_number or 0)
        enqueued_ms = int(message.enqueued_time_ms or 0)
        changes = MessageChanges(keeps_death=True)
        if self._id_source is not None:
            new_id = derived_message_id(self._id_source, number, enqueued_ms)
            changes = MessageChanges({"message_id": new_id}, keeps_death=True)
        try:
            copy = sent_again(message, now_ms(), changes)
        except ValueRefused as error:
            raise StaysDeferred(f"{error}.") from error
        sent = await self._outlet.send([(copy, number, enqueued_ms)])
        if isinstance(sent, Accepted):
            return
        if isinstance(sent, Refused):
            raise StaysDeferred(f"the target refuses it: {sent.description or sent.condition}")
        doubt = " A copy may be there." if sent.is_in_doubt else ""
        raise StaysDeferred(f"the target does not answer: {sent.cause}{doubt}", is_last=True)
