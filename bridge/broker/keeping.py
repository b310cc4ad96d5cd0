"""The program of the process that keeps sockets; `keeper` says why, and starts it.

Needs nothing but Python's own library, and knows nothing of what goes over the sockets.
"""

import select
import signal
import socket
import sys
import time

LINGER_S = 1.0
"""How long the connections live on after the bridge was killed, for RabbitMQ to apply what it has
read. Acks that a channel keeps back are applied within a few milliseconds, unless RabbitMQ stands
still just then: of 100 acks 67 came back when it did so for longer, none when for half as long
(3.10.8 and 4.3.6)."""

END_S = 10.0
"""So long RabbitMQ may take to read the rest."""

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


def main(control: socket.socket) -> None:
    """Hold what comes over `control` until that ends, and let it linger then."""
    kept: dict[int, socket.socket] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        is_over = False
        for number, event in poll.poll():
            if number == control.fileno():
                message, descriptors = _receive(control)
                for descriptor in descriptors:
                    kept[descriptor] = socket.socket(fileno=descriptor)
                    poll.register(descriptor, _ENDED)
                is_over = not message
                if message:
                    control.sendall(message)
            elif event & _ENDED:
                poll.unregister(number)
                kept.pop(number).close()
        if is_over:
            _linger(kept)
            return


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
