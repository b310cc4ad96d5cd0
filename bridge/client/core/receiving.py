"""A receiver of either lane: the checked arguments, and the receiver's calls."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from bridge.client.constants import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from bridge.client.core.call import Call, number_of
from bridge.client.core.deferred import deferred_call
from bridge.client.core.options import ReceiverOptions, check_names, sub_queue_of
from bridge.client.core.session_source import SessionSource
from bridge.client.exceptions import MessageAlreadySettled, MessageLockLostError
from bridge.client.received_message import ServiceBusReceivedMessage, received_messages
from bridge.message.received import Received
from bridge.model.name import EntityPath, SubQueue

WAIT_S = 60.0
"""Default wait of `receive_messages`, as the SDK's; iteration waits without end."""


class ReceiveSource:
    """A queue, subscription or sub-queue without sessions, as a receiver's source.

    Attributes:
        is_open: whether the entity was found.
    """

    def __init__(self, path: EntityPath, mode: ServiceBusReceiveMode) -> None:
        self._path = path
        self._mode = mode
        self.is_open = False

    def open(self, wait_s: float | None) -> Call[Any]:
        """Check that the entity exists."""
        return Call("check", (self._path.entity,), is_receiving=True)

    def opened(self, found: Any) -> None:
        """Note that the entity exists."""
        self.is_open = True

    def pull(self, count: int, wait_s: float | None) -> Call[Any]:
        """Receive up to `count` messages."""
        return Call("pull", (self._path, count, wait_s, self._mode))

    def peek(self, start: int, count: int, timeout: float | None) -> Call[Any]:
        """Return messages from a number on."""
        return Call("peek", (self._path, start, count), timeout)

    def deferred(self, numbers: list[int], timeout: float | None) -> Call[Any]:
        """Receive deferred messages by number."""

        def end_locks(how: str, found: list[Received]) -> Call[Any]:
            return Call("end_locks", (self._path, found, how))

        asked = self._path, numbers
        return deferred_call("receive_deferred", asked, timeout, self._mode, end_locks)

    def settle(
        self,
        message: ServiceBusReceivedMessage,
        how: str,
        reason: str | None,
        description: str | None,
    ) -> Call[Any]:
        """End a message's lock.

        Raises:
            MessageLockLostError: the lock has ended.
        """
        return self._settle(_locked(message), how, reason, description)

    def renew(self, message: ServiceBusReceivedMessage, timeout: float | None) -> Call[Any]:
        """Renew a message's lock.

        Raises:
            MessageLockLostError: the lock has ended.
        """
        asked = self._path, _locked(message)
        return Call("renew", asked, timeout, is_receiving=True)

    def _settle(
        self, locked: Received, how: str, reason: str | None, description: str | None
    ) -> Call[Any]:
        asked = self._path, locked, how, reason, description
        return Call("settle", asked, is_receiving=True, is_tried_again=False)

    def close(self) -> Call[Any] | None:
        """Do nothing: locks stay until they end or the client is closed."""
        return None


class ClientReceiving:
    """The state and calls of one receiver.

    Args:
        source: the queue or session to receive from.
        max_wait_time: seconds; the receiver's default.
        renewer: renews the locks of messages, or of the session.

    Attributes:
        session: the source, if it is a session; else `None`.
        is_closed: no more calls are made.
        identifier: the receiver's name in logs.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        source: ReceiveSource | SessionSource,
        mode: ServiceBusReceiveMode,
        max_wait_time: float | None,
        renewer: Any,
        identifier: str | None,
    ) -> None:
        _check_wait(max_wait_time)
        self.session = source if isinstance(source, SessionSource) else None
        has_locks = mode is ServiceBusReceiveMode.PEEK_LOCK or self.session is not None
        if renewer is not None and not has_locks:
            raise ValueError("Messages received in RECEIVE_AND_DELETE mode have no locks to renew.")
        self._source = source
        self._mode = mode
        self._max_wait_s = max_wait_time
        self._renewer = renewer
        self._next_peek = 1
        self.is_closed = False
        self.identifier = identifier or f"SBReceiver-{uuid4()}"

    @property
    def is_open(self) -> bool:
        """Whether the source was found or accepted."""
        return self._source.is_open

    def open(self, wait_s: float | None = None) -> Call[Any]:
        """Check that the source exists; accept a session.

        Args:
            wait_s: the first call's wait, if limited.
        """
        _check_wait(wait_s)
        return self._source.open(wait_s)

    def opened(self, receiver: Any, found: Any) -> Call[Any] | None:
        """Note that the source is open: register a session with the renewer."""
        self._source.opened(found)
        if self.is_closed:
            return self._source.close()
        if self._renewer is not None and self.session is not None:
            self._renewer.register(receiver, receiver.session)
        return None

    def close(self) -> Call[Any] | None:
        """Make no more calls; end a session's lock."""
        self.is_closed = True
        return self._source.close()

    def next(self) -> Call[Any]:
        """Wait for the next message; without end, unless the receiver has a `max_wait_time`."""
        self.check()
        return self._source.pull(1, self._max_wait_s)

    def pull(self, count: int | None, max_wait_time: float | None) -> Call[Any]:
        """Receive up to `count` messages."""
        self.check()
        _check_wait(max_wait_time)
        if count is not None and count <= 0:
            raise ValueError("The max_message_count must be greater than 0")
        return self._source.pull(count or 1, max_wait_time or self._max_wait_s or WAIT_S)

    def peek(
        self, count: int, sequence_number: int, timeout: float | None
    ) -> Call[list[ServiceBusReceivedMessage]]:
        """Return messages from a number on, or behind the last peeked message."""
        self.check()
        if count < 1:
            raise ValueError("max_message_count must be 1 or greater.")
        start = number_of(sequence_number or self._next_peek)
        call = self._source.peek(start, number_of(count), timeout)
        call.read = self._peeked
        return call

    def _peeked(self, found: list[Received]) -> list[ServiceBusReceivedMessage]:
        """Return peeked messages in the application's form."""
        if found:
            self._next_peek = found[-1].sequence_number + 1
        return list(received_messages(found, is_peeked=True))

    def deferred(self, numbers: list[int], timeout: float | None) -> Call[Any]:
        """Receive deferred messages."""
        self.check()
        return self._source.deferred(numbers, timeout)

    def received(self, receiver: Any, found: list[Received]) -> list[ServiceBusReceivedMessage]:
        """Return received messages in the application's form; register their locks."""
        messages = list(received_messages(found))
        if self._renewer is not None and self.session is None:
            for message in messages:
                self._renewer.register(receiver, message)
        return messages

    def settle(
        self,
        message: object,
        how: str,
        reason: str | None = None,
        description: str | None = None,
    ) -> Call[None]:
        """End a message's lock; `_locked` lists the refusals.

        Raises:
            TypeError, ValueError: a reason or description is no text, or cannot be encoded.
        """
        self.check()
        _check_text("reason", reason)
        _check_text("error_description", description)
        locked = self._locked(message)
        call = self._source.settle(locked, how, reason, description)
        call.read = locked._settled
        return call

    def renew(self, message: object, timeout: float | None) -> Call[datetime]:
        """Give a message's lock its full duration; `_locked` lists the refusals."""
        self.check()
        locked = self._locked(message)
        call = self._source.renew(locked, timeout)
        call.read = locked._renewed
        return call

    def check(self) -> None:
        """Raise ValueError when the receiver is closed."""
        if self.is_closed:
            raise ValueError("The handler has already been shutdown. Make another one.")

    def _locked(self, message: object) -> ServiceBusReceivedMessage:
        """Return a message that may have a lock.

        Raises:
            TypeError: not a received message.
            ValueError: received and deleted, or peeked.
            MessageAlreadySettled: settled before.
        """
        if not isinstance(message, ServiceBusReceivedMessage):
            raise TypeError("Parameter 'message' must be of type ServiceBusReceivedMessage")
        if message._is_peeked:
            raise ValueError("A message returned by peek_messages cannot be settled.")
        if self._mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            raise ValueError("Settling needs receive_mode PEEK_LOCK; this is RECEIVE_AND_DELETE.")
        if message._is_settled:
            raise MessageAlreadySettled("The message was settled before.")
        if message.lock_token is None:
            raise ValueError("The message has no lock.")
        return message


def receiving_from(path: str, options: ReceiverOptions) -> ClientReceiving:
    """Return a receiver of a queue or subscription, or of its dead-letter sub-queue.

    Raises:
        TypeError: an option is unknown.
        ValueError, NotImplementedError: an option's value is invalid here.
    """
    check_names(options, ReceiverOptions, "A receiver")
    mode = ServiceBusReceiveMode(options.get("receive_mode", ServiceBusReceiveMode.PEEK_LOCK))
    session_id, max_wait_time = options.get("session_id"), options.get("max_wait_time")
    found = sub_queue_of(options.get("sub_queue"), path)
    source: ReceiveSource | SessionSource = ReceiveSource(EntityPath(path, found), mode)
    if session_id is not None:
        if found is not SubQueue.NONE:
            raise ValueError("A sub-queue has no sessions: give session_id or sub_queue, not both.")
        wanted = None if session_id is NEXT_AVAILABLE_SESSION else str(session_id)
        source = SessionSource(path, wanted, mode, max_wait_time)
    renewer, identifier = options.get("auto_lock_renewer"), options.get("client_identifier")
    return ClientReceiving(source, mode, max_wait_time, renewer, identifier)


def _locked(message: ServiceBusReceivedMessage) -> Received:
    if message.lock_token is None or message._lock_expired:
        raise MessageLockLostError("The lock on the message has ended.")
    return message._received


def _check_wait(max_wait_time: float | None) -> None:
    if max_wait_time is not None and max_wait_time <= 0:
        raise ValueError("The max_wait_time must be greater than 0.")


def _check_text(name: str, given: object) -> None:
    if given is None:
        return
    if not isinstance(given, str):
        raise TypeError(f"Parameter '{name}' must be a str, not {type(given).__name__}.")
    given.encode()  # a lone surrogate: UnicodeEncodeError, a ValueError
