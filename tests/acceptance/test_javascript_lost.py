"""JavaScript's client loses its connection while it asks for a token: what `docs/sdks.md` says."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from tests.acceptance.balancer import Balancer
from tests.acceptance.driver import node_program
from tests.acceptance.sdk import client_of, send
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long

ENTITIES = {
    "hasty": {"LockDuration": "PT5M"},
    "patient": {"LockDuration": "PT5M"},
}

CLIENT_S = 60
"""How long the client waits for the answer to a token."""

HANDLERS = ("0", "1")
"""Two messages: the handler of the second one asks a second after that of the first."""


def asks_for_management(written: bytes) -> bool:
    """Whether a client puts its token for `$management`."""
    return b"put-token" in written and b"/$management" in written


@contextmanager
def processor(bridge: Bridge, kind: str) -> Iterator[tuple[subprocess.Popen[str], Balancer]]:
    """A processor that is told to end when it has lost its connection and both handlers ask."""
    with client_of(bridge) as client:
        send(client, kind, *HANDLERS)
    node, program = node_program("lost.mjs")
    with Balancer(bridge.port, ends_at=asks_for_management) as balancer:
        text = bridge.connection_string.replace(f":{bridge.port};", f":{balancer.port};")
        with subprocess.Popen(
            [node, program, kind, text, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert [said(process).readline() for _ in HANDLERS] == ["asks\n", "asks\n"]
                eventually(lambda: balancer.cuts == 1, "it puts its token")
                assert process.stdin is not None
                process.stdin.close()
                yield process, balancer
            finally:
                process.kill()


def said(process: subprocess.Popen[str]) -> IO[str]:
    """Return what a process says."""
    assert process.stdout is not None
    return process.stdout


def test_what_goes_on_behind_a_close_keeps_the_process_alive(bridge: Bridge) -> None:
    """The client connects again a minute later, for the second handler, and never closes that."""
    began_s = time.monotonic()
    with processor(bridge, "hasty") as (process, balancer):
        assert said(process).readline() == "closed\n"
        assert time.monotonic() - began_s > CLIENT_S
        eventually(lambda: balancer.visits >= 2, "it has connected again")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(10)


def test_a_processor_that_waits_for_its_handlers_ends(bridge: Bridge) -> None:
    """Then its close ends the connection that they have opened."""
    with processor(bridge, "patient") as (process, _):
        assert said(process).readline() == "closed\n"
        assert process.wait(120) == 0
