"""A client's I/O thread, and the turns of the application's threads beside it.

The application may handle a message for an hour: the I/O thread reads what RabbitMQ sends, and
sends heartbeats. The application's own thread does the application's requests, if no other thread
takes a turn at that moment: handing a request over and back takes longer than most requests.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.client.core.call import ENDED
from bridge.client.exceptions import OutcomeUnknownError, ServiceBusError
from bridge.client.sync.loop import Loop
from bridge.client.sync.outcome import CallOutcome

PASS_S = 0.0005
"""A thread without a further turn in this time is not waited for."""

PASS_MAX_S = 0.005
"""How long incoming data may wait for other threads' turns."""

TORN = "The client was interrupted in the middle of a call: nobody knows what came of this one."
INTERRUPTING = (
    "A signal handler has interrupted this ServiceBusClient in the middle of a call: there it can "
    "only be closed."
)


class IoThread:
    """The I/O thread, which ends with `stop` or with the process.

    Attributes:
        loop: pika's loop; used in turns of this object only.
        on_torn: called when an exception of the application's (a signal handler's, an interrupt)
            has ended a turn in the middle: the state of the connections is unreliable then.
    """

    def __init__(self) -> None:
        self.loop = Loop()
        self.on_torn: list[Callable[[], None]] = []
        # Reentrant: a signal handler may run in the middle of a turn of its own thread.
        self._turn = threading.RLock()
        self._is_wanted = False
        self._torn: list[CallOutcome] | None = None
        self._is_stopped = self._is_ended = False
        self._turns = self._turns_seen = 0
        self._awaited: set[CallOutcome] = set()
        self._hurry = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="busbridge client", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], None]) -> None:
        """Call `call` in the I/O thread; without a lock, so for signal handlers too.

        Raises:
            ServiceBusError: this process was forked from the one that made the client.
        """
        self._check_process()
        self.loop.add_callback(call)

    def do(self, call: Callable[[], None]) -> None:
        """Call `call` here and now; in the I/O thread, if a turn or call is waiting there.

        Raises:
            ServiceBusError: this process was forked from the one that made the client, or this
                thread is in the middle of a turn: a wait would never end.
        """
        self._check_process()
        if self._is_interrupted:
            raise ServiceBusError(INTERRUPTING)
        loop = self.loop
        if self._is_wanted or self._torn is not None or loop.calls:
            loop.add_callback(call)
            return
        with self._turn:
            try:
                call()
                for _ in range(len(loop.soons)):
                    loop.soons.popleft()()
            except BaseException:
                self.tear()
                raise
            finally:
                self._turns += 1
                if loop.is_overdue:
                    loop.wake()

    def tear(self) -> None:
        """Note that a turn was ended in the middle."""
        self._torn = list(self._awaited)
        self.loop.wake()

    @contextmanager
    def awaited(self, answer: CallOutcome) -> Iterator[None]:
        """Mark an answer as awaited; the thread's end fails the answer."""
        self._awaited.add(answer)
        self._hurry.set()
        try:
            if self._is_ended:
                answer.end(OutcomeUnknownError(ENDED))
            yield
        finally:
            self._awaited.discard(answer)

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn; in a turn only."""
        self.loop.soons.append(call)

    @property
    def is_here(self) -> bool:
        """Whether the thread belongs to this process, and not to the parent of a fork."""
        return os.getpid() == self._pid

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the I/O thread, or interrupts a turn in its own."""
        return threading.current_thread() is self._thread or self._is_interrupted

    def stop(self) -> None:
        """End the thread after the calls before this one."""
        self.call(self._stop)

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, unless the caller would wait for itself."""
        if not self.is_current:
            self._thread.join(timeout_s)

    @property
    def _is_interrupted(self) -> bool:
        """Whether the calling thread is in the middle of a turn."""
        return bool(self._turn._is_owned())  # type: ignore[attr-defined]

    def _check_process(self) -> None:
        if not self.is_here:
            raise ServiceBusError(
                "The process was forked after this ServiceBusClient was made; make one in the "
                "child."
            )

    def _stop(self) -> None:
        self._is_stopped = True

    def _run(self) -> None:
        loop = self.loop
        ready: list[tuple[int, int]] = []
        while True:
            self._is_wanted = True
            with self._turn:
                self._is_wanted = False
                if self._torn is not None:
                    self._mend(self._torn)
                loop.turn(ready)
                if self._is_stopped:
                    self._end()
                    return
                loop.prepare()
            ready = loop.wait()
            self._let_pass()

    def _mend(self, awaited: list[CallOutcome]) -> None:
        """Give up half-done state before anything more is written."""
        self._torn = None
        for call in self.on_torn:
            self.loop.do(call)
        for answer in awaited:
            answer.end(OutcomeUnknownError(TORN))

    def _end(self) -> None:
        self.loop.close()
        self._is_ended = True
        for answer in list(self._awaited):
            answer.end(OutcomeUnknownError(ENDED))

    def _let_pass(self) -> None:
        """Let threads that take turn after turn without waiting take their next turns first.

        Two threads that alternate for every message are twice as slow as one after the other.
        """
        end_s = time.monotonic() + PASS_MAX_S
        while self._turns != self._turns_seen and not self._awaited and time.monotonic() < end_s:
            self._turns_seen = self._turns
            self._hurry.clear()
            self._hurry.wait(PASS_S)
        self._turns_seen = self._turns
