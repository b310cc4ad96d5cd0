"""The program of the process that keeps sockets; `keeper` says why, and starts it.

Needs nothing but Python's own library, and knows nothing of what goes over the sockets.
"""

import contextlib
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

LINGER_S = 1.0
"""How long the connections live on after the bridge was killed, for RabbitMQ to apply what it has
read; counted from when it has answered an executor. Acks that a channel keeps back are applied
within a few milliseconds, unless RabbitMQ stands still just then: of 100 acks 67 came back when it
did so for longer, none when for half as long (3.10.8 and 4.3.6)."""

ANSWER_S = 5.0
"""So long RabbitMQ may take to answer an executor, before the connections live no longer."""

END_S = 10.0
"""So long all that follows may take, whatever RabbitMQ has read by then."""

PLEDGE_BYTES = 65_536
"""The memory of one connection's pledge."""

_POSITION_AT, _LENGTH_AT, _DATA_AT = 0, 8, 16
"""In that memory: where in the connection's stream of bytes it begins, its length, its bytes."""

_WORD = struct.Struct("@Q")
"""Native, and so written in one piece: a kill leaves the old number or the new one."""

PLEDGE_BYTES_MAX = PLEDGE_BYTES - _DATA_AT

_LINE_BYTES = 2_048
"""In the memory of a connection's will: one line of it, its length first."""

LINE_LENGTH = struct.Struct("=H")

LINE_BYTES_MAX = _LINE_BYTES - LINE_LENGTH.size

SOCKET, PLEDGED, WILLED = b"s", b"p", b"w"
"""What comes over the control socket: a socket alone, or with the memory of its pledge, or with
that of its will."""

EXECUTOR = "bridge.broker.executor"
"""The module that publishes what a will says."""

_TCP_INFO_BYTES = 128
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_AT = 120
"""`tcpi_bytes_acked` of Linux' `struct tcp_info`: what the peer's kernel has."""

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Kept:
    """A connection that is held.

    Attributes:
        socket: its own view of the connection's socket.
        pledge: what was promised to be written to it.
        will: what is to be published when the process was killed and all else has been applied.
        executor: who is to publish it.
    """

    def __init__(self, word: bytes, descriptors: list[int]) -> None:
        number, *memories = descriptors
        self.socket = socket.socket(fileno=number)
        self.pledge: mmap.mmap | None = None
        self.will: int | None = None
        self.executor: subprocess.Popen[bytes] | None = None
        for memory in memories:
            if word == PLEDGED:
                self.pledge = mmap.mmap(memory, PLEDGE_BYTES)
                os.close(memory)
            else:
                self.will = memory

    def begin(self) -> None:
        """The process was killed: write what was promised, and have its will's executor come."""
        if self.pledge is not None:
            redeem(self.socket, self.pledge)
        if self.will is not None:  # also when it is empty: RabbitMQ's answer is waited for
            self.executor = begin_execution(read_lines(self.will))

    def hear(self) -> bool:
        """Read what has come; returns whether more may come."""
        try:
            return bool(self.socket.recv(1 << 16))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def end(self, until_s: float) -> None:
        """Have the will carried out, say that nothing more comes, and read the rest."""
        if self.executor is not None:
            end_execution(self.executor, until_s)
            self.executor = None
        with contextlib.suppress(OSError):  # RabbitMQ has ended the connection
            self.socket.shutdown(socket.SHUT_WR)
        self.socket.settimeout(left_s(until_s))
        while self.hear():
            self.socket.settimeout(left_s(until_s))
        self.close()

    def close(self) -> None:
        """Let go of it; its will is not carried out."""
        if self.executor is not None:
            self.executor.kill()
            self.executor.wait()
        if self.will is not None:
            os.close(self.will)
        self.socket.close()


def main(control: socket.socket) -> None:
    """Hold what comes over `control` until that ends, and let it linger then."""
    kept: dict[int, Kept] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for number, event in poll.poll():
            if number == control.fileno():
                word, descriptors = _receive(control)
                if not word:
                    for each in kept.values():
                        each.begin()
                    linger(kept)
                    return
                if descriptors:
                    kept[descriptors[0]] = Kept(word, descriptors)
                    poll.register(descriptors[0], _ENDED)
                control.sendall(word)
            elif event & _ENDED:
                poll.unregister(number)
                kept.pop(number).close()


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


def line_at(place: int) -> int:
    """Return where in a will's memory the line of this place begins."""
    return place * _LINE_BYTES


def read_lines(memory: int) -> list[bytes]:
    """Return the lines of a will."""
    places = os.fstat(memory).st_size // _LINE_BYTES
    lines = [os.pread(memory, _LINE_BYTES, line_at(place)) for place in range(places)]
    start = LINE_LENGTH.size
    filled = [line[start : start + LINE_LENGTH.unpack_from(line)[0]] for line in lines]
    return [line for line in filled if line]


def begin_execution(lines: list[bytes]) -> "subprocess.Popen[bytes] | None":
    """Have a process connect that is to publish what these lines say, and return it.

    It says a byte when RabbitMQ has answered it.
    """
    try:
        executor = subprocess.Popen(
            [sys.executable, "-m", EXECUTOR],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert executor.stdin is not None
        executor.stdin.write(b"\n".join((*lines, b"", b"")))
        executor.stdin.flush()
    except OSError:
        return None
    return executor


def end_execution(executor: "subprocess.Popen[bytes]", until_s: float) -> None:
    """Have it publish now, and wait until it has."""
    try:
        executor.communicate(b"\n", timeout=left_s(until_s))
    except (OSError, subprocess.TimeoutExpired):
        executor.kill()
        executor.wait()


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    try:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 8)
    except ConnectionResetError:  # killed before it read an answer
        return b"", []
    return message, descriptors


def left_s(until_s: float) -> float:
    """Return how long it is until then; a moment when that is past."""
    return max(until_s - time.monotonic(), 0.01)


def linger(kept: dict[int, Kept]) -> None:
    """Hold the connections for a while, counted from when RabbitMQ answers; then end them in order.

    Meanwhile what RabbitMQ says is read: a channel that cannot say it does nothing else.
    """
    executors = [each.executor for each in kept.values() if each.executor is not None]
    answers = {each.stdout.fileno() for each in executors if each.stdout is not None}
    over_s = time.monotonic() + (ANSWER_S if answers else LINGER_S)
    poll = select.poll()
    for number in (*kept, *answers):
        poll.register(number, select.POLLIN)
    while kept and (wait_s := over_s - time.monotonic()) > 0:
        for number, _ in poll.poll(wait_s * 1000):
            if number in answers:
                poll.unregister(number)
                over_s = time.monotonic() + LINGER_S
            elif not kept[number].hear():
                poll.unregister(number)
                kept.pop(number).close()
    for each in sorted(kept.values(), key=lambda each: each.executor is not None):
        each.end(over_s + END_S)  # first those for which nothing is waited for


if __name__ == "__main__":
    for _name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE"):
        signal.signal(getattr(signal, _name), signal.SIG_IGN)
    main(socket.socket(fileno=int(sys.argv[1])))
