"""Clients that reset their connection in the middle of a request, at both ports of a bridge."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from bridge.model.access import sign

ENTITIES: dict[str, dict[str, object]] = {"broken": {}}

RESET = struct.pack("ii", 1, 0)
"""To linger for no time: the kernel sends a reset in place of what is left."""

BODIES = {
    "a length": "Content-Length: 1000\r\n\r\n<entry",
    "chunks": "Transfer-Encoding: chunked\r\n\r\n5\r\n<entr\r\n",
    "half a chunk": "Transfer-Encoding: chunked\r\n\r\n50\r\n<entr",
    "a compressed body": "Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n\x1f",
    "a malformed chunk": "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a malformed compressed body": "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
}


def token_of(bridge: Any, host: str) -> str:
    """Return a token for all of a host, by the rule of the connection string."""
    fields = dict(part.split("=", 1) for part in bridge.connection_string.split(";") if part)
    uri = quote(f"http://{host}/", safe="")
    end_s = int(time.time() + 600)
    signature = quote(sign(uri, fields["SharedAccessKey"], end_s), safe="")
    name = fields["SharedAccessKeyName"]
    return f"SharedAccessSignature sr={uri}&sig={signature}&se={end_s}&skn={name}"


@pytest.mark.parametrize("place", ["the port of messages", "the admin port"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("has_token", [True, False], ids=["a token", "no token"])
def test_a_reset_in_the_middle_of_a_body(
    bridge: Any, has_token: bool, body: str, place: str
) -> None:
    """The bridge goes on, without a traceback in its log; nothing is created."""
    is_admin = place == "the admin port"
    port = urlsplit(bridge.admin_url).port if is_admin else bridge.port
    host = f"localhost:{port}"
    head = (
        f"PUT /half?api-version=2021-05 HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: {token_of(bridge, host)}\r\n"
    )
    sent = head if has_token else head.replace("SharedAccessSignature", "None")
    lines = len(bridge.lines)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall((sent + body).encode("latin-1"))
            assert bridge.get("/health/live")  # it has read what came, and waits for the rest
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    for _ in range(5):
        assert bridge.get("/health")
    log = bridge.lines[lines:]
    assert not [each for each in log if "Traceback" in each or "Error" in each], "\n".join(log)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head.replace("PUT", "GET").encode() + b"Connection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 404")), answer
    assert b"QueueDescription" not in answer


def test_health_while_many_requests_hang(bridge: Any) -> None:
    """Of 500 half-open requests at the admin port the oldest give way to who asks."""
    port = urlsplit(bridge.admin_url).port
    with ExitStack() as held:
        for _ in range(500):
            client = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            with suppress(ConnectionError):  # it has given way already
                client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for path in ("/health", "/health/live", "/health/ready", "/metrics") * 5:
            assert bridge.get(path)
