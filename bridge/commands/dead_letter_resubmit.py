"""`busbridge dead-letter resubmit`: sends dead letters again, and removes them behind."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bridge.commands.clock import now_ms
from bridge.commands.copy_target import check_duplicates, opened_outlet, target_path
from bridge.commands.dry_run import dry_run
from bridge.commands.errors import WrongInput
from bridge.commands.message_path import DEAD_LETTER, add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.property_values import properties_of, value_in
from bridge.commands.selection_options import add_selection, selection_of
from bridge.commands.taking import take
from bridge.commands.taking_options import add_taking, check_taking, rules_of, undo_of
from bridge.commands.target import NamespaceLogin, add_target, target_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.commands.editing import Editor
    from bridge.commands.taking_run import Judge
    from bridge.operations.changes import MessageChanges
    from bridge.operations.selection import MessageSelection
    from bridge.remote.namespace import RemoteNamespace


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "resubmit",
        "send dead letters again, each as a new message, and remove them behind",
        run=run,
        right="Listen on the entity and Send on the target (with Manage on it, a bridge takes none "
        "twice)",
        examples=(
            "busbridge dead-letter resubmit orders --where \"DeadLetterReason = 'bad'\" --rate 10",
            "busbridge dead-letter resubmit orders --number 5 --set subject=order --undo sent",
        ),
    )
    add_path(parser, has_dead_letter=False)
    parser.add_argument(
        "--to", metavar="ENTITY",
        help="a queue or a topic, or TOPIC/Subscriptions/NAME for this subscription alone, at a "
        "bridge with the right Manage (default: its own queue; a subscription's topic, so all of "
        "its subscriptions)",
    )  # fmt: skip
    add_selection(parser, limit="how many to send at most")
    group = parser.add_argument_group("changes", "All else is sent byte for byte.")
    group.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", dest="fields",
        help="a field of a line (docs/message-lines.md), as subject=order or "
        "'body={\"json\": {\"total\": 5}}'; null removes it; may be given again",
    )  # fmt: skip
    group.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="an application property, as in send; null removes it; may be given again",
    )  # fmt: skip
    group.add_argument(
        "--new-id", action="store_true",
        help="a MessageId that is made of source, number and time: where duplicates are detected, "
        "none of the original, and of each repeat the same",
    )  # fmt: skip
    group.add_argument(
        "--edit", action="store_true",
        help="change each message in an editor (VISUAL, EDITOR) before it is sent; what is saved "
        "empty stays dead",
    )  # fmt: skip
    group.add_argument(
        "--keep-reason", action="store_true",
        help="leave DeadLetterReason and DeadLetterErrorDescription in",
    )  # fmt: skip
    add_taking(parser)
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Send what is meant, and remove it behind."""
    from bridge.remote.namespace import RemoteNamespace

    check_taking(arguments)
    path = path_in(arguments.entity, is_dead_letter=True)
    to = target_path(path, arguments.to)
    selection = selection_of(arguments)
    changes = _changes(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        if arguments.dry_run:
            done = f"sent to {to}"
            return await dry_run(namespace, path, selection, arguments.limit, output, done)
        if arguments.to is None and "/subscriptions/" in path.lower():
            output.confirm(
                f"They are sent to the topic {to}: every subscription of it whose rules take them "
                f"gets them. To this one alone, at a bridge: --to {path[: -len(DEAD_LETTER)]}."
            )
        return await _resubmit(
            namespace, target, (path, to), (selection, changes), arguments, output
        )


def _changes(arguments: argparse.Namespace) -> MessageChanges:
    from bridge.operations.changes import MessageChanges
    from bridge.operations.lines.scalar_values import ValueRefused

    try:
        return MessageChanges(
            _fields(arguments.fields),
            properties_of(arguments.properties),
            keeps_death=arguments.keep_reason,
        )
    except ValueRefused as error:
        raise WrongInput(f"--set: {error}.") from None


def _fields(texts: Iterable[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise WrongInput(f"--set {text!r}: write FIELD=VALUE.")
        given = value_in(value)
        is_bare = isinstance(given, int | float) and not isinstance(given, bool)
        found[name] = value if is_bare and name not in _NUMBERS else given
    return found


_NUMBERS = frozenset({"priority", "time_to_live", "group_sequence", "scheduled_enqueue_time"})
"""Fields whose values may be numbers; those of all others are texts, as `--set message_id=5`."""


async def _resubmit(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    paths: tuple[str, str],
    what: tuple[MessageSelection, MessageChanges],
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    from bridge.commands.editing import Editor
    from bridge.operations.undo_file import UndoHead
    from bridge.relay.plan.source_identity import source_name

    path, to = paths
    selection, changes = what
    is_one = arguments.limit == 1 or len(set(arguments.numbers)) == 1
    if not arguments.new_id and not (is_one and "message_id" in changes.fields):
        await check_duplicates(target, to, output)
    source = source_name(target.address.namespace, path)
    outlet = await opened_outlet(namespace, source, to, output)
    head = UndoHead(
        verb="resubmit",
        namespace=target.address.namespace,
        entity=path,
        to=to,
        keeps_death=changes.keeps_death,
        began_ms=now_ms(),
    )
    others = {"window": 1} if arguments.edit else {}
    editor = Editor(await namespace.management(path)) if arguments.edit else None
    rules = rules_of(arguments, is_moving=True, bytes_max=outlet.batch_bytes_max, **others)
    return await take(
        output,
        namespace,
        path,
        rules,
        _judge(selection, changes, source if arguments.new_id else None, editor),
        selection=selection,
        wait_s=arguments.wait,
        doing="sending",
        done=f"sent to {to}",
        outlet=outlet,
        undo=partial(undo_of, arguments.undo, head),
    )


def _judge(
    selection: MessageSelection,
    changes: MessageChanges,
    id_source: str | None,
    editor: Editor | None,
) -> Judge:
    """Return what says which messages are sent, and as what.

    Args:
        id_source: the source of which new ids are made; `None`: ids stay.
    """
    from bridge.commands.taking_run import Judged
    from bridge.model.filters.errors import FilterException
    from bridge.operations.changes import sent_again
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.relay.plan.source_identity import derived_message_id
    from bridge.relay.running.judgement import number_of
    from bridge.remote.delivery import RemoteDelivery

    def changes_of(delivery: RemoteDelivery) -> MessageChanges:
        if id_source is None:
            return changes
        enqueued_ms = int(delivery.message.enqueued_time_ms or 0)
        new_id = derived_message_id(id_source, number_of(delivery), enqueued_ms)
        return replace(changes, fields={**changes.fields, "message_id": new_id})

    async def judge(delivery: RemoteDelivery) -> Judged:
        try:
            if not selection.takes(delivery.message):
                return Judged(False)
            given = changes_of(delivery)
            copy = sent_again(delivery.message, now_ms(), given)
        except (FilterException, ValueRefused) as error:
            return Judged(False, str(error))
        is_changed = bool(given.fields or given.properties)
        if editor is not None:
            edited = await editor.edited(copy, delivery)
            if edited is None:
                return Judged(False)
            copy, is_changed = edited, True
        return Judged(True, copy=copy, is_changed=is_changed)

    return judge
