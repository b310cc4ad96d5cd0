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
    """Errors that may pass are tried again, as azure-core does; a refusal is not."""
    expected = status in (408, 429, 500, 502, 503, 504)
    assert is_retryable(of_status(status, "why", "")) is expected


def test_errors_of_connections() -> None:
    """A call that was not begun is tried again; one that may have been done is not."""
    assert is_retryable(ServiceBusConnectionError())
    assert is_retryable(ServiceBusCommunicationError())
    assert not is_retryable(OutcomeUnknownError())
    assert not is_retryable(ServiceBusAuthenticationError())
    assert not is_retryable(ValueError())
