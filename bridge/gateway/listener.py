"""A listener: accepts connections as admission allows, a limited number in each loop turn."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from bridge.background.supervisor import Supervisor
from bridge.background.tasks import Tasks
from bridge.gateway.client.admission import Admission, ConnectionEnd, NotAdmitted, Visit
from bridge.gateway.first_byte import begins_tls

_log = logging.getLogger("busbridge.gateway")

AT_ONCE = 16
"""Connections that are accepted before other tasks get their turn."""

PAUSE_S = 0.2
"""How long nothing is accepted when the process has no file descriptor to spare."""

HANDSHAKE_S_MIN = 0.1
"""Minimum time for the TLS handshake, however long the client was silent before."""

UNAUTHENTICATED_BUFFER_BYTES = 4_096
"""About the size of the kernel's receive buffer of an unauthenticated TLS client. All of the buffer
is deciphered in one turn of the loop, and a record of one byte costs as much as a large one: with
the usual buffer 90 such clients make a turn 0.8 s long."""

KNOWN_BUFFER_BYTES = 1 << 20
"""The receive buffer's size once a token was accepted, as far as the system allows."""

_SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

_OF_A_CLIENT = frozenset(
    (
        *(errno.ECONNABORTED, errno.ECONNRESET, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EOPNOTSUPP),
        *(errno.ENONET, errno.ETIMEDOUT),
    )
)
"""Errors of one new connection, of which accept(2) tells; all others are the socket's own."""


class Listener:
    """One listening socket.

    A refused connection is closed without an answer: the answer would cost more than the refusal.

    Args:
        make: returns the protocol of a connection.
        tls: if given, TLS is accepted too.
        is_tls_only: connections without TLS are refused.
        handshake_s: how long a client may take to begin, and to end the TLS handshake.
        supervisor: keeps accepting.
    """

    def __init__(
        self,
        listener: socket.socket,
        admission: Admission,
        make: Callable[[Visit], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None,
        is_tls_only: bool,
        handshake_s: float,
        supervisor: Supervisor,
    ) -> None:
        listener.setblocking(False)
        self._socket = listener
        self._admission = admission
        self._make = make
        self._tls = tls
        self._is_tls_only = is_tls_only
        self._handshake_s = handshake_s
        self._connecting = Tasks()
        port = str(listener.getsockname()[1])
        self._accepting = supervisor.keep("listener", self._accept, subject=f"port {port}").task

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        count = 0
        while True:
            try:
                client, address = await loop.sock_accept(self._socket)
            except OSError as error:
                if error.errno in _SCARCE:
                    _log.error("gateway.accept_failed error=%s", error.strerror)
                    await asyncio.sleep(PAUSE_S)
                elif error.errno not in _OF_A_CLIENT:
                    raise
                continue
            visit = self._admission.enter(address[0])
            if isinstance(visit, NotAdmitted):
                client.close()
            else:
                self._connecting.start(self._connect(client, visit), "connection's begin")
            count += 1
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _connect(self, client: socket.socket, visit: Visit) -> None:
        reason = ConnectionEnd.UNAUTHENTICATED
        try:
            async with asyncio.timeout(visit.left_s(self._handshake_s)):
                tls = await self._tls_of(client)
            reason = ConnectionEnd.TLS
            if tls is not None:
                _buffer(client, UNAUTHENTICATED_BUFFER_BYTES)
                visit.on_known = partial(_buffer, client, KNOWN_BUFFER_BYTES)
            left_s = max(visit.left_s(self._handshake_s), HANDSHAKE_S_MIN)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(visit),
                client,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else left_s,
            )
        except (OSError, TimeoutError):
            self._admission.ended[reason] += 1
            visit.leave()
            client.close()
        except BaseException:
            visit.leave()
            client.close()
            raise

    async def _tls_of(self, client: socket.socket) -> ssl.SSLContext | None:
        """Return the TLS context of a connection; `None` for a client that begins without TLS."""
        if self._tls is None or self._is_tls_only or await begins_tls(client):
            return self._tls
        return None

    def close(self) -> None:
        """Stop accepting connections."""
        self._accepting.cancel()
        self._connecting.cancel()
        self._socket.close()

    async def wait_closed(self) -> None:
        """Wait until no accept or handshake is under way."""
        await asyncio.gather(self._accepting, *self._connecting, return_exceptions=True)


def _buffer(client: socket.socket, size: int) -> None:
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
