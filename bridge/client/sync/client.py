"""The synchronous `ServiceBusClient`: connections, I/O thread, waiting calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, Unpack

import tenacity

from bridge.client.core.call import Call
from bridge.client.core.namespace import ClientNamespace
from bridge.client.core.options import (
    ClientOptions,
    Options,
    ReceiverOptions,
    SenderOptions,
    subscription_path,
)
from bridge.client.core.pull import Begun
from bridge.client.core.receiving import receiving_from
from bridge.client.core.session_listing import SessionListing
from bridge.client.exceptions import OperationTimeoutError, ServiceBusConnectionError
from bridge.client.sync.connection import PikaWire
from bridge.client.sync.outcome import CallOutcome
from bridge.client.sync.receiver import ServiceBusReceiver
from bridge.client.sync.sender import ServiceBusSender
from bridge.client.sync.thread import IoThread

Result = TypeVar("Result")

CONNECT_S = 20.0
"""How long an operation waits for a connection before it fails."""

CLOSE_S = 5.0


class ServiceBusClient:
    """A client of a virtual host of RabbitMQ, under the SDK's name; thread-safe.

    Every method raises TypeError for an option that it does not have.

    Args:
        fully_qualified_namespace: RabbitMQ's URL, or anything with `rabbitmq_url=` beside it.
        credential: accepted and not used.
        options: the SDK's options, and `rabbitmq_url`.

    Raises:
        ValueError: the URL of RabbitMQ is missing or malformed.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: object = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._options = Options(fully_qualified_namespace, credential, options)
        self._lock = threading.RLock()
        self._thread: IoThread | None = None
        self._sending: PikaWire | None = None
        self._receiving: PikaWire | None = None
        self._namespace: ClientNamespace | None = None
        self._is_closed = False
        self.fully_qualified_namespace = str(self._options.address)

    def __enter__(self) -> ServiceBusClient:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ServiceBusClient({self._options.address})"

    @classmethod
    def from_connection_string(
        cls, conn_str: str, **options: Unpack[ClientOptions]
    ) -> ServiceBusClient:
        """Return a client.

        Args:
            conn_str: RabbitMQ's URL; or Azure's connection string, with `rabbitmq_url=` or
                `BUSBRIDGE_RABBITMQ_URL` beside it.
        """
        return cls(conn_str, None, **options)

    def get_queue_sender(
        self, queue_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Return a sender to a queue."""
        return ServiceBusSender(self, queue_name, "queue_name", options)

    def get_topic_sender(
        self, topic_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Return a sender to a topic."""
        return ServiceBusSender(self, topic_name, "topic_name", options)

    def get_queue_receiver(
        self, queue_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return a receiver of a queue, or of its dead-letter sub-queue."""
        return ServiceBusReceiver(self, queue_name, receiving_from(queue_name, options))

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return a receiver of a subscription, or of its dead-letter sub-queue."""
        return self.get_queue_receiver(subscription_path(topic_name, subscription_name), **options)

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> Iterator[str]:
        """Iterate over the ids of a queue's sessions with messages or a state.

        Args:
            state_updated_after: list the sessions whose state was set after this time instead.
            timeout: seconds for all pages together.
        """
        return self._sessions(SessionListing(queue_name, state_updated_after, timeout))

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> Iterator[str]:
        """Iterate over the ids of a subscription's sessions; see `list_queue_sessions`."""
        path = subscription_path(topic_name, subscription_name)
        return self._sessions(SessionListing(path, state_updated_after, timeout))

    def _sessions(self, listing: SessionListing) -> Iterator[str]:
        while page := self._run(listing.next_page()):
            listing.read(len(page))
            yield from page

    def close(self) -> None:
        """Close the connections; locked messages go back to their queues at once.

        May be called in a signal handler, and more than once.
        """
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is None or not thread.is_here:
            return
        thread.call(partial(self._leave, thread))
        thread.join(CLOSE_S)

    def _leave(self, thread: IoThread) -> None:
        assert self._namespace is not None
        self._namespace.leave(partial(self._end, thread))

    def _end(self, thread: IoThread) -> None:
        assert self._namespace is not None
        assert self._sending is not None
        assert self._receiving is not None
        self._namespace.close()
        wires = [self._sending, self._receiving]
        for wire in wires:
            wire.close()
        # pika closes channels and connection by asking RabbitMQ, which answers in this thread.
        wires[0].later(0.05, partial(self._ended, thread, wires, 0))

    def _ended(self, thread: IoThread, wires: list[PikaWire], tries: int) -> None:
        if tries < 40 and any(wire.is_closing for wire in wires):
            wires[0].later(0.05, partial(self._ended, thread, wires, tries + 1))
        else:
            thread.stop()

    def _run(self, call: Call[Result]) -> Result:
        """Do an operation of the namespace; return its answer."""
        if not call.is_tried_again or not self._options.retry.total:
            return self._once(call)
        attempt = partial(self._once, call)
        result: Result = tenacity.Retrying(**self._options.retry.arguments())(attempt)
        return result

    def _once(self, call: Call[Result]) -> Result:
        namespace, thread = self._connected(call.is_receiving)
        answer: CallOutcome = CallOutcome()
        thread.do(partial(call.begin, namespace, answer))
        timeout_s = call.timeout_s or self._options.try_timeout
        try:
            if not answer.done():
                with thread.awaited(answer):
                    if not answer.wait(timeout_s):
                        raise OperationTimeoutError(f"{call.name} did not end in time.")
            result = answer.result()
            if call.followed_by is not None:
                thread.do(partial(call.follow, namespace, result))
        except BaseException as error:
            self._give_up(thread, call, answer)
            if error is answer.exception() and _is_foreign(error):
                thread.tear()
            raise
        return result if call.read is None else call.read(result)

    def _give_up(self, thread: IoThread, call: Call[Any], answer: CallOutcome) -> None:
        if not answer.cancel() and call.undone_by is not None:
            thread.call(partial(call.undo, self._namespace, answer))

    def _pull(self, call: Call[Any]) -> Any:
        """Wait for messages; retry a failure only before messages were asked for."""
        begun: list[Begun] = []
        attempt = partial(self._pull_once, call, begun)
        return tenacity.Retrying(**self._options.retry.arguments(lambda: not begun))(attempt)

    def _pull_once(self, call: Call[Any], begun: list[Begun]) -> Any:
        """Wait for messages; an interrupt ends the wait, and gives later messages back.

        Args:
            begun: gets what the waiting call is told.
        """
        namespace, thread = self._connected(True)
        answer: CallOutcome = CallOutcome()
        thread.do(partial(call.begin, namespace, answer, begun.append))
        try:
            with thread.awaited(answer):
                answer.wait()
            result = answer.result()
            for each in begun:
                if each.taken is not None and result:
                    thread.do(each.taken)
            return result
        except BaseException:
            answer.cancel()
            for each in begun:
                thread.call(each.stop)
                thread.call(each.put_back)
            raise

    def _connected(self, is_receiving: bool) -> tuple[ClientNamespace, IoThread]:
        """Wait until the connections are open.

        Raises:
            ServiceBusConnectionError: no connection in time.
            ServiceBusAuthenticationError: RabbitMQ refuses the login.
        """
        thread = self._thread or self._start()
        assert self._namespace is not None
        wires = [self._sending, self._receiving if is_receiving else None]
        for wire in wires:
            if wire is None or wire.is_up:
                continue
            thread.call(wire.start_once)
            up: CallOutcome = CallOutcome()
            thread.call(partial(wire.ready, up))
            with thread.awaited(up):
                if not up.wait(CONNECT_S):
                    raise ServiceBusConnectionError(
                        f"No connection within {CONNECT_S:.0f} s: {wire.last_error}"
                    )
            up.result()
        return self._namespace, thread

    def _start(self) -> IoThread:
        with self._lock:
            if self._thread is None and not self._is_closed:
                thread = IoThread()
                address = self._options.address
                self._sending = PikaWire(thread, address, "publishing")
                self._receiving = PikaWire(thread, address, "consuming")
                self._namespace = ClientNamespace(self._sending, self._receiving)
                thread.on_torn.append(self._namespace.lose)
                self._thread = thread
            started = self._thread
        if started is None or self._is_closed:
            self.close()  # the other close may have come before the thread was made
            raise ValueError("The ServiceBusClient is closed.")
        return started


def _is_foreign(error: BaseException) -> bool:
    """Whether the library does not raise this error: a signal handler's, or of a defect."""
    is_ours = type(error).__module__.startswith("bridge.")
    return not is_ours and not isinstance(error, ValueError | TypeError | NotImplementedError)
