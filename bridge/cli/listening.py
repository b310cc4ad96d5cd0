"""Sockets to listen on: a given port, or the next free port after a default."""

from __future__ import annotations

import errno
import socket

from bridge.broker.node.port_holder import holder_of
from bridge.cli.settings import Port, SettingsError
from bridge.commands.listening import bound

_NEXT_FREE_TRIES = 100


def listen(host: str, port: Port, option: str) -> socket.socket:
    """Return a listening socket; print the port if the default port was taken.

    Raises:
        SettingsError: the address cannot be used, or a given port is taken.
    """
    tries = 1 if port.was_asked_for else _NEXT_FREE_TRIES
    for number in range(port.number, port.number + tries):
        try:
            listener = bound(host, number)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SettingsError(
                    f"The bridge cannot listen on {host} port {number}: {error.strerror}. "
                    f"Give another --host or --{option}."
                ) from error
            continue
        if number != port.number:
            holder = holder_of(port.number)
            print(
                f"Port {port.number} is taken by {holder}; --{option} is {number} instead.",
                flush=True,
            )
        return listener
    raise SettingsError(
        f"Port {port.number} on {host} is taken by {holder_of(port.number)}. "
        f"Stop what listens there, or give another --{option}."
    )
