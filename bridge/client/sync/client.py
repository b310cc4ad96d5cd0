"""The synchronous `ServiceBusClient`: its connections, its thread, and what waits for them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any

import tenacity

from bridge.client.constants import ServiceBusReceiveMode, ServiceBusSubQueue
from bridge.client.core.directory import guarded
from bridge.client.core.namespace import Namespace
from bridge.client.core.options import Options, sub_queue_of, subscription_path
from bridge.client.core.refusals import unsupported
from bridge.client.exceptions import OperationTimeoutError, ServiceBusConnectionError
from bridge.client.sync.connection import PikaWire
from bridge.client.sync.receiver import ServiceBusReceiver
from bridge.client.sync.sender import ServiceBusSender
from bridge.client.sync.thread import IoThread

CONNECT_S = 20.0
"""How long an operation waits for a connection before it fails."""

CLOSE_S = 5.0


class ServiceBusClient:
    """A client of a virtual host of RabbitMQ, under the SDK's name; thread-safe.

    Args:
        fully_qualified_namespace: RabbitMQ's URL, or anything with `rabbitmq_url=` beside it.
        credential: accepted and not used.
        options: those of the SDK, and `rabbitmq_url`.

    Raises:
        ValueError: there is no URL of RabbitMQ, or it is malformed.
        TypeError: an option is unknown.
    """

    def __init__(
        self, fully_qualified_namespace: str, credential: object = None, **options: Any
    ) -> None:
        self._options = Options(fully_qualified_namespace, credential, options)
        self._lock = threading.RLock()
        self._thread: IoThread | None = None
        self._sending: PikaWire | None = None
        self._receiving: PikaWire | None = None
        self._namespace: Namespace | None = None
        self._is_closed = False
        self.fully_qualified_namespace = str(self._options.address)

    def __enter__(self) -> ServiceBusClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ServiceBusClient({self._options.address})"

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> ServiceBusClient:
        """Return a client.

        Args:
            conn_str: RabbitMQ's URL; or Azure's connection string, with `rabbitmq_url=` or
                `BUSBRIDGE_RABBITMQ_URL` beside it.
        """
        return cls(conn_str, None, **options)

    def get_queue_sender(self, queue_name: str, **options: Any) -> ServiceBusSender:
        """Return a sender to a queue."""
        return ServiceBusSender(self, queue_name, "queue_name", options)

    def get_topic_sender(self, topic_name: str, **options: Any) -> ServiceBusSender:
        """Return a sender to a topic."""
        return ServiceBusSender(self, topic_name, "topic_name", options)

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: object = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: Any = None,
        prefetch_count: int = 0,
        **options: Any,
    ) -> ServiceBusReceiver:
        """Return a receiver of a queue, or of its dead-letter sub-queue."""
        if session_id is not None:
            unsupported("sessions")
        return ServiceBusReceiver(
            self,
            queue_name,
            sub_queue_of(sub_queue, queue_name),
            ServiceBusReceiveMode(receive_mode),
            max_wait_time,
            auto_lock_renewer,
            options,
        )

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> ServiceBusReceiver:
        """Return a receiver of a subscription, or of its dead-letter sub-queue."""
        return self.get_queue_receiver(subscription_path(topic_name, subscription_name), **options)

    def list_queue_sessions(self, queue_name: str, **options: Any) -> Any:
        """Not here."""
        unsupported("list_queue_sessions")

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> Any:
        """Not here."""
        unsupported("list_subscription_sessions")

    def close(self) -> None:
        """Close the connections; what is locked goes back to its queue at once.

        May be called in a signal handler, and more than once.
        """
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        done: Future[None] = Future()
        thread.call(partial(self._end, done))
        if not thread.is_current:
            with contextlib.suppress(TimeoutError):
                done.result(CLOSE_S)
        thread.stop()

    def _end(self, done: Future[None]) -> None:
        assert self._namespace is not None
        assert self._sending is not None
        self._namespace.close()
        wires = [wire for wire in (self._sending, self._receiving) if wire is not None]
        for wire in wires:
            wire.close()
        # pika closes channels and connection by asking RabbitMQ, which answers in this thread.
        self._sending.later(0.05, partial(self._ended, wires, 0, done))

    def _ended(self, wires: list[PikaWire], tries: int, done: Future[None]) -> None:
        if tries < 40 and any(wire.is_closing for wire in wires):
            wires[0].later(0.05, partial(self._ended, wires, tries + 1, done))
        else:
            done.set_result(None)

    def _run(
        self,
        name: str,
        *arguments: Any,
        timeout_s: float | None = None,
        is_receiving: bool = False,
        is_tried_again: bool = True,
    ) -> Any:
        """Have the namespace do something; return what it answers."""
        attempt = partial(self._once, name, arguments, timeout_s, is_receiving)
        if not is_tried_again or not self._options.retry.total:
            return attempt()
        return tenacity.Retrying(**self._options.retry.arguments())(attempt)

    def _once(
        self, name: str, arguments: tuple[Any, ...], timeout_s: float | None, is_receiving: bool
    ) -> Any:
        namespace, thread = self._connected(is_receiving)
        answer: Future[Any] = Future()
        thread.call(partial(guarded, answer, getattr(namespace, name), *arguments, answer))
        try:
            return answer.result(timeout_s or self._options.try_timeout)
        except TimeoutError as error:
            answer.cancel()
            raise OperationTimeoutError(f"{name} did not end in time.", error=error) from None

    def _pull(self, arguments: tuple[Any, ...]) -> Any:
        """Wait for messages; an interrupt ends the wait, and gives back what comes after it."""
        namespace, thread = self._connected(True)
        answer: Future[Any] = Future()
        stops: list[Callable[[], None]] = []
        thread.call(partial(guarded, answer, namespace.pull, *arguments, answer, stops.append))
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            for stop in stops:
                thread.call(stop)
            raise

    def _connected(self, is_receiving: bool) -> tuple[Namespace, IoThread]:
        """Wait until the connections are there.

        Raises:
            ServiceBusConnectionError: they are not, in time.
            ServiceBusAuthenticationError: RabbitMQ refuses the login.
        """
        if self._is_closed:
            raise ValueError("The ServiceBusClient is closed.")
        thread = self._thread or self._start()
        assert self._namespace is not None
        wires = [self._sending, self._receiving if is_receiving else None]
        for wire in wires:
            if wire is None or wire.is_up:
                continue
            thread.call(wire.start_once)
            up: Future[None] = Future()
            thread.call(partial(wire.ready, up))
            try:
                up.result(CONNECT_S)
            except TimeoutError:
                raise ServiceBusConnectionError(
                    f"No connection within {CONNECT_S:.0f} s: {wire.last_error}"
                ) from None
        return self._namespace, thread

    def _start(self) -> IoThread:
        with self._lock:
            if self._thread is None:
                thread = IoThread()
                address = self._options.address
                self._sending = PikaWire(thread, address, "publishing")
                self._receiving = PikaWire(thread, address, "consuming")
                self._namespace = Namespace(self._sending, self._receiving)
                self._thread = thread
            return self._thread
