"""Arrivals: reading the messages of an inbox; each becomes one command.

An inbox holds envelopes of bridges and clients, messages of native publishers, messages that
expired in the inbox and came back, and the sequencers' ownership tokens. Reading needs no state and
no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bridge.machine.inbox.stampable_items import BARE as BARE
from bridge.machine.inbox.stampable_items import PROPERTIES_BYTES_MAX as PROPERTIES_BYTES_MAX
from bridge.machine.inbox.stampable_items import make_ready
from bridge.model.name import SHORT_ID_BYTES
from bridge.model.session_id import fold
from bridge.wire import commits, envelope, headers, inquiries, reservations
from bridge.wire.basic import Properties, python_value
from bridge.wire.commits import CommitContent, LockedMessage
from bridge.wire.digest import of_text
from bridge.wire.envelope import Envelope, Item, MalformedEnvelope, Operation
from bridge.wire.native import clean
from bridge.wire.sessions import session_id_of

OWNERSHIP_TOKEN_KIND = "baton"
"""Value of `x-busbridge-kind` on a message that a sequencer sent to the owner of the inbox."""

MALFORMED_MESSAGE = "MalformedMessage"
MALFORMED_ENVELOPE = "MalformedEnvelope"
MISPLACED_MESSAGE = "MisplacedMessage"
"""Reason of a message published into a queue that only the bridge publishes to."""

_SESSION_ID = headers.SESSION_ID.encode()

_REASON_BYTES_MAX = 4_096
"""Limit of a dead letter's reason and of its description (Service Bus's: 4,096 characters)."""


class ReplyTo(NamedTuple):
    """The address of a sender that waits for an answer."""

    queue: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class SendCommand:
    """A command: number these messages, and store messages for later until they are due.

    Attributes:
        identity: the envelope's identity, or `None` for a native message.
        items: the messages.
        reply_to: where the numbers are sent.
        comes_again: RabbitMQ has delivered the message before; known of native messages.
        first: the place of the first message in its envelope, which its identity has.
        refused: of an envelope with several messages, those that become dead letters: the place of
            each, and a description.
    """

    identity: bytes | None
    items: Sequence[Item]
    reply_to: ReplyTo | None = None
    comes_again: bool = False
    first: int = 0
    refused: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """A command: remove these scheduled messages, all or none."""

    identity: bytes
    numbers: Sequence[int]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class ImportCommand:
    """A command: store these messages under the numbers that they bring, all or none.

    Attributes:
        run: the digest of the run that imports (`wire.imported`).
        items: the messages; each has `imported`.
    """

    run: bytes
    items: Sequence[Item]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """A report: clients of a bridge have used these entities.

    Attributes:
        bridge: the bridge's name.
        used: short id of an entity, and the age of its last use (ms).
    """

    bridge: bytes
    used: Sequence[tuple[bytes, int]]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class ExpiredUnnumbered:
    """A message that expired before it had a number."""

    item: Item


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """A message that cannot be handled, or came to a wrong queue: a dead letter.

    Attributes:
        reason: in one word.
        description: a sentence.
    """

    item: Item
    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class TokenArrival:
    """The message of a sequencer; `term` names the sequencer's term."""

    term: bytes


@dataclass(frozen=True, slots=True)
class Move:
    """A command: have these messages take the places of scheduled ones, all or none.

    Attributes:
        numbers: of the scheduled messages, one for each item.
    """

    identity: bytes
    numbers: Sequence[int]
    items: Sequence[Item]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """A command: carry out a transaction, all of it or nothing (`machine.inbox.commits`).

    Attributes:
        identity: the transaction's id.
        fault: why it cannot be carried out, whatever it has: one of its messages cannot be read.
        is_decided: its decision is confirmed, and its messages follow (`Applied.goes_on`).
    """

    identity: bytes
    content: CommitContent
    reply_to: ReplyTo | None = None
    fault: str = ""
    is_decided: bool = False


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question: which of these messages, that come again, have transactions settled?"""

    identity: bytes
    messages: Sequence[LockedMessage]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """A command: pass over a number for each message that a transaction is to schedule.

    Attributes:
        keys: of each message the key that chooses its partition, if it has one.
    """

    identity: bytes
    keys: Sequence[bytes | None]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A report: the outcomes of these messages are carried out."""

    messages: Sequence[LockedMessage]


Command = (
    SendCommand
    | Cancel
    | Move
    | ImportCommand
    | Used
    | ExpiredUnnumbered
    | RefusedItem
    | TokenArrival
)
TransactionCommand = Commit | Inquiry | CarriedOut | Reserve


def read(
    properties: bytes,
    body: bytes,
    *,
    detects_duplicates: bool = False,
    folds_keys: bool = False,
    comes_again: bool = False,
) -> Command | TransactionCommand:
    """Return the command of an arrival; an unreadable arrival is `RefusedItem`.

    Args:
        properties: the encoded properties, as RabbitMQ delivered them.
        body: the body, as RabbitMQ delivered it.
        detects_duplicates: the entity detects duplicates, so a message id chooses the partition.
        folds_keys: the entity is partitioned and folds session ids: those that choose the partition
            are folded here, whoever has sent the message.
        comes_again: RabbitMQ has delivered the arrival before.
    """
    try:
        command = _read(properties, body, detects_duplicates, comes_again)
        if folds_keys and isinstance(command, SendCommand | Move):
            for item in command.items:
                fold_key(item)
        elif folds_keys and isinstance(command, Commit):
            for item in (*command.content.sends, *command.content.schedules.items):
                fold_key(item)
        elif folds_keys and isinstance(command, ExpiredUnnumbered | RefusedItem):
            fold_key(command.item)
        return command
    except Exception as error:
        # Otherwise the arrival would come again and again, and stop its entity.
        return unreadable(body, error)


def unreadable(body: bytes, error: Exception) -> RefusedItem:
    """Return the dead letter of a message whose properties cannot be read."""
    description = f"The message cannot be read: {type(error).__name__}: {error}"
    return RefusedItem(Item(BARE, body), MALFORMED_MESSAGE, description[:500])


def refuse(properties: bytes, body: bytes, reason: str, description: str) -> RefusedItem:
    """Return the dead letter of a message that cannot stay in the queue."""
    try:
        item = _native(Properties.decode(properties), body, False)
    except ValueError:
        item = Item(BARE, body)
    if len(item.properties) > PROPERTIES_BYTES_MAX:
        item = Item(BARE, body)
    return RefusedItem(item, reason, description)


def _read(
    properties: bytes, body: bytes, detects_duplicates: bool, comes_again: bool
) -> Command | TransactionCommand:
    if properties == envelope.SILENT_PROPERTIES:
        return _read_envelope(properties, body, None)
    try:
        basic = Properties.decode(properties)
    except ValueError as error:
        description = f"The properties cannot be read: {error}"
        return RefusedItem(Item(BARE, body), MALFORMED_MESSAGE, description)
    if len(properties) > PROPERTIES_BYTES_MAX:
        description = f"The properties have {len(properties)} bytes."
        return RefusedItem(Item(BARE, body), MALFORMED_MESSAGE, description)
    kind = (basic.headers or {}).get(headers.KIND, ("V", None))[1]
    if kind == envelope.KIND.encode():
        return _read_envelope(properties, body, _reply_to(basic))
    if kind == OWNERSHIP_TOKEN_KIND.encode():
        return TokenArrival(body)
    if kind == envelope.REFUSED_KIND.encode():
        return _refused(basic, body)
    item = _native(basic, body, detects_duplicates)
    if kind == envelope.EXPIRED_UNNUMBERED_KIND.encode():
        return ExpiredUnnumbered(item)
    return SendCommand(None, (item,), comes_again=comes_again)


def _read_envelope(
    properties: bytes, body: bytes, reply_to: ReplyTo | None
) -> Command | TransactionCommand:
    try:
        read = envelope.decode(body)
        if read.sections:
            return _read_sections(read, reply_to)
        # Whoever waits for all numbers gets them all, or none.
        is_import = read.operation is Operation.IMPORT
        is_all = reply_to is not None or is_import or read.operation is Operation.MOVE
        is_whole = len(read.items) == 1 or is_all
        refused = make_ready(read.items, is_whole=is_whole)
    except MalformedEnvelope as error:
        description = f"The envelope cannot be read: {error}"
        return refuse(properties, body, MALFORMED_ENVELOPE, description)
    if read.operation is Operation.CANCEL:
        return Cancel(read.identity, read.numbers, reply_to)
    if read.operation is Operation.MOVE:
        return Move(read.identity, read.numbers, read.items, reply_to)
    if read.operation is Operation.USED:
        return Used(read.identity[:SHORT_ID_BYTES], read.used, reply_to)
    if is_import:
        if any(item.imported is None for item in read.items):
            return refuse(properties, body, MALFORMED_ENVELOPE, "It imports nothing.")
        return ImportCommand(read.identity, read.items, reply_to)
    return SendCommand(read.identity, read.items, reply_to, refused=refused)


def _read_sections(read: Envelope, reply_to: ReplyTo | None) -> TransactionCommand:
    """Return the command of an envelope of transactions; raises MalformedEnvelope."""
    if read.operation is Operation.INQUIRE:
        return Inquiry(read.identity, inquiries.decode(read.sections), reply_to)
    if read.operation is Operation.CARRIED_OUT:
        return CarriedOut(inquiries.decode(read.sections))
    if read.operation is Operation.RESERVE:
        return Reserve(read.identity, reservations.decode_keys(read.sections), reply_to)
    content = commits.decode(read.sections)
    fault = ""
    try:
        make_ready(content.sends, is_whole=True)
        make_ready(content.schedules.items, is_whole=True)
    except Exception as error:  # its sender waits for a verdict
        fault = f"A message cannot be read: {error}"[:500]
    return Commit(read.identity, content, reply_to, fault)


def _refused(basic: Properties, body: bytes) -> RefusedItem:
    """Return a refused message, with the reason that a bridge has put into its headers."""
    table = basic.headers or {}
    names = headers.DEAD_LETTER_REASON, headers.DEAD_LETTER_ERROR_DESCRIPTION
    reason, description = [python_value(table.pop(name, ("S", b""))) for name in names]
    item = _native(basic, body, False)
    return RefusedItem(item, _cut(reason) or MALFORMED_MESSAGE, _cut(description))


def _cut(value: object) -> str:
    return (
        value.encode("utf-8", "replace")[:_REASON_BYTES_MAX].decode("utf-8", "replace")
        if isinstance(value, str)
        else ""
    )


def _native(basic: Properties, body: bytes, detects_duplicates: bool) -> Item:
    target = (basic.headers or {}).get(headers.TARGET, ("V", None))[1]
    native = clean(basic)
    key = native.key
    if key is None and detects_duplicates and native.message_id is not None:
        key = native.message_id.encode("utf-8", "surrogateescape")
    return Item(
        native.properties,
        body,
        native.ttl_ms,
        native.scheduled_ms,
        key,
        target if isinstance(target, bytes) else None,
        None if native.message_id is None or not detects_duplicates else of_text(native.message_id),
    )


def fold_key(item: Item) -> None:
    """Fold the key of a message that has a session id: the id is its key.

    A bridge's door has folded it already. Native publishers and the library have not.
    """
    key = item.key
    if key is None or _SESSION_ID not in item.properties or (key.isascii() and key == key.upper()):
        return  # the common cases need no reading of the message's headers
    try:
        session_id = session_id_of(item.properties)
    except ValueError:  # what cannot be read names no session, and concerns its message alone
        return
    if session_id:
        folded = fold(session_id).encode("utf-8", "surrogateescape")
        item.key = folded[: envelope.KEY_BYTES_MAX]


def _reply_to(basic: Properties) -> ReplyTo | None:
    if not basic.reply_to:
        return None
    return ReplyTo(basic.reply_to, basic.correlation_id or "")
