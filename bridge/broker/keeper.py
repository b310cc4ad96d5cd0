"""What keeps sockets open for a moment when this process is killed.

A killed process's sockets are closed by the kernel, and one that still had something to read is
reset: RabbitMQ then may never read what was written to it last, an ack that a client has been told
of among it (measured on 3.10 and 4.3: of 200 completed messages up to 167 came back). RabbitMQ's
channel also keeps acks back while more than 32 are being applied, and forgets them when it ends.

A small process of its own holds duplicates of the sockets. When the bridge dies it first writes
what was promised and not written (`pledge`), holds the sockets for `keeping.LINGER_S`, has what is
to be said of the dead published (`will`), says on each socket that nothing more will come, and ends
when RabbitMQ has closed it too. It reads all the while. So what the kernel took before the kill is
read by RabbitMQ to the last byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from bridge.broker import keeping
from bridge.broker.pledge import Pledge
from bridge.broker.will import Will

CLOSE_S = 1.0
"""How long its end is waited for; it comes by itself later."""

log = logging.getLogger(__name__)


class Keeper:
    """The process that keeps sockets; it ends with this one.

    Attributes:
        is_alive: whether it runs.
        holds_all: set while it holds all that it was given, or can hold nothing.
    """

    def __init__(self) -> None:
        self.is_alive = False
        self.holds_all = asyncio.Event()
        self.holds_all.set()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: deque[Callable[[], None]] = deque()

    def start(self) -> None:
        """Start the process; where that cannot be, `is_alive` stays False."""
        if not hasattr(socket, "send_fds"):
            return
        ours, its = socket.socketpair()
        script = Path(keeping.__file__)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(its.fileno())],
                pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("keeper.failed error=%s", error)
            ours.close()
            return
        finally:
            its.close()
        ours.setblocking(False)
        self.is_alive = True
        self._socket = ours
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._on_word)

    def keep(
        self, kept: socket.socket, on_kept: Callable[[], None], memory: Pledge | Will | None = None
    ) -> None:
        """Have a socket held until its connection ends; `on_kept` is called when it is.

        Args:
            kept: the socket.
            on_kept: called once.
            memory: what is promised to be written to it, or what is to be written after a kill.
        """
        if self._socket is None:
            return
        word, descriptors = keeping.SOCKET, [kept.fileno()]
        if memory is not None:
            word = keeping.PLEDGED if isinstance(memory, Pledge) else keeping.WILLED
            descriptors.append(memory.descriptor)
        try:
            socket.send_fds(self._socket, [word], descriptors)
        except OSError as error:
            self._lose(str(error))
        else:
            self._asked.append(on_kept)
            self.holds_all.clear()

    async def close(self) -> None:
        """End it; what it still holds lingers as after a kill."""
        self._lose("")
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, CLOSE_S)

    def _on_word(self) -> None:
        """It holds one more socket, or several; or it has ended."""
        assert self._socket is not None
        try:
            words = self._socket.recv(64)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(str(error))
            return
        if not words:
            self._lose("it has ended")
        for _ in words:
            self._asked.popleft()()
        if not self._asked:
            self.holds_all.set()

    def _lose(self, reason: str) -> None:
        self.is_alive = False
        self._asked.clear()
        self.holds_all.set()
        if reason:
            log.warning("keeper.lost reason=%s", reason)
        if self._socket is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
