"""What the library does again."""

from __future__ import annotations

import pytest

from bridge.client.core.retrying import is_retryable
from bridge.client.exceptions import (
    OutcomeUnknownError,
    ServiceBusAuthenticationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)
from bridge.client.management.errors import of_status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 429, 500, 501, 502, 503, 504])
def test_answers_of_administration(status: int) -> None:
    """What may be otherwise a moment later, as azure-core has it; a refusal is one."""
    expected = status in (408, 429, 500, 502, 503, 504)
    assert is_retryable(of_status(status, "why", "")) is expected


def test_errors_of_connections() -> None:
    """What was not begun is; what may have been done is not, nor what stays refused."""
    assert is_retryable(ServiceBusConnectionError())
    assert is_retryable(ServiceBusCommunicationError())
    assert not is_retryable(OutcomeUnknownError())
    assert not is_retryable(ServiceBusAuthenticationError())
    assert not is_retryable(ValueError())
