"""The program of the process that keeps sockets; `keeper` says why, and starts it.

Needs nothing but Python's own library, and knows nothing of what goes over the sockets.
"""

import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import termios
import time

LINGER_S = 1.0
"""How long the connections live on after the bridge was killed, for RabbitMQ to apply what it has
read. Acks that a channel keeps back are applied within a few milliseconds, unless RabbitMQ stands
still just then: of 100 acks 67 came back when it did so for longer, none when for half as long
(3.10.8 and 4.3.6)."""

END_S = 10.0
"""So long RabbitMQ may take to read the rest."""

PLEDGE_BYTES = 65_536
"""The memory of one connection's pledge."""

_POSITION_AT, _LENGTH_AT, _DATA_AT = 0, 8, 16
"""In that memory: where in the connection's stream of bytes it begins, its length, its bytes."""

_WORD = struct.Struct("@Q")
"""Native, and so written in one piece: a kill leaves the old number or the new one."""

PLEDGE_BYTES_MAX = PLEDGE_BYTES - _DATA_AT

_TCP_INFO_BYTES = 128
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_AT = 120
"""`tcpi_bytes_acked` of Linux' `struct tcp_info`: what the peer's kernel has."""

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


def main(control: socket.socket) -> None:
    """Hold what comes over `control` until that ends, and let it linger then."""
    kept: dict[int, socket.socket] = {}
    pledges: dict[int, mmap.mmap] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        is_over = False
        for number, event in poll.poll():
            if number == control.fileno():
                message, descriptors = _receive(control)
                if descriptors:
                    taken, *memories = descriptors
                    kept[taken] = socket.socket(fileno=taken)
                    poll.register(taken, _ENDED)
                    for memory in memories:
                        pledges[taken] = mmap.mmap(memory, PLEDGE_BYTES)
                        os.close(memory)
                is_over = not message
                if message:
                    control.sendall(message)
            elif event & _ENDED:
                poll.unregister(number)
                kept.pop(number).close()
                pledges.pop(number, None)
        if is_over:
            for number, pledge in pledges.items():
                redeem(kept[number], pledge)
            _linger(kept)
            return


def sent_bytes(connection: socket.socket) -> int:
    """Return how many bytes the kernel has taken on this TCP connection, ever (Linux).

    Off by a constant: the kernel counts the opening of a connection as a byte.
    """
    while True:
        acked_bytes = _acked_bytes(connection)
        unacked = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
        if _acked_bytes(connection) == acked_bytes:
            return acked_bytes + int.from_bytes(unacked, sys.byteorder)


def _acked_bytes(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    count: int = _BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0]
    return count


def begin_pledge(memory: mmap.mmap, position: int) -> None:
    """Promise nothing yet, from this place of the stream on."""
    _WORD.pack_into(memory, _LENGTH_AT, 0)  # first, or what was kept would be promised again
    _WORD.pack_into(memory, _POSITION_AT, position)


def add_to_pledge(memory: mmap.mmap, length: int, data: bytes) -> None:
    """Promise these bytes too, behind `length` others; a kill in between promises none of them."""
    start = _DATA_AT + length
    memory[start : start + len(data)] = data
    _WORD.pack_into(memory, _LENGTH_AT, length + len(data))


def redeem(connection: socket.socket, memory: mmap.mmap) -> None:
    """Write what was promised last and the kernel has not taken."""
    length: int = _WORD.unpack_from(memory, _LENGTH_AT)[0]
    try:
        begin = sent_bytes(connection) - _WORD.unpack_from(memory, _POSITION_AT)[0]
        if 0 <= begin < length:
            connection.setblocking(True)
            connection.settimeout(END_S)
            connection.sendall(memory[_DATA_AT + begin : _DATA_AT + length])
    except OSError:  # RabbitMQ has ended the connection
        pass


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    try:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 8)
    except ConnectionResetError:  # killed before it read an answer
        return b"", []
    return message, descriptors


def _linger(kept: dict[int, socket.socket]) -> None:
    if kept:
        time.sleep(LINGER_S)
    deadline_s = time.monotonic() + END_S
    for each in kept.values():
        try:
            each.setblocking(True)
            each.shutdown(socket.SHUT_WR)
            each.settimeout(max(deadline_s - time.monotonic(), 0.01))
            while each.recv(1 << 16):
                each.settimeout(max(deadline_s - time.monotonic(), 0.01))
        except OSError:
            pass
        each.close()


if __name__ == "__main__":
    for _name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE"):
        signal.signal(getattr(signal, _name), signal.SIG_IGN)
    main(socket.socket(fileno=int(sys.argv[1])))
