"""Fixtures of the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.gateway.settings import Settings
from bridge.machine.amqp10.limits import Limits
from bridge.model.entity import Queue
from tests.conformance.door import Door


@pytest.fixture
def door() -> Iterator[Door]:
    """A gateway with a queue `q`; its frames are small, so that much needs several."""
    settings = Settings(message_bytes_max=1_048_576, limits=Limits(frame_bytes_max=4_096))
    with Door(Queue(name="q"), settings=settings) as running:
        yield running
