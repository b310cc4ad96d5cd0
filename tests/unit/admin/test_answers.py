"""What the administration API answers when RabbitMQ fails in the middle of a request."""

from __future__ import annotations

import asyncio

import pytest

from bridge.admin.answers import HttpAnswer, answered
from bridge.broker.errors import ConnectionLost


@pytest.mark.parametrize(
    ("method", "status", "says"),
    [
        ("PUT", 504, "it may have been carried out"),
        ("DELETE", 504, "it may have been carried out"),
        ("GET", 503, "RabbitMQ cannot do this now"),
    ],
)
def test_a_change_that_rabbitmq_may_have_made_is_not_refused(
    method: str, status: int, says: str
) -> None:
    """A client tries again after both; of a change it knows that it may be made."""

    async def lost() -> HttpAnswer:
        raise ConnectionLost(text="the cable")

    answer = asyncio.run(answered(lost(), method, "host", "/orders"))
    assert answer.status == status
    assert says in answer.text
