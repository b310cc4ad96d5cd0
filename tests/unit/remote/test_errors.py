"""Errors of remote namespaces, by the conditions of their servers."""

from __future__ import annotations

import pytest

from bridge.model import errors as model
from bridge.remote.attachment import in_doubt
from bridge.remote.errors import (
    RemoteBusy,
    RemoteConnectionLost,
    RemoteError,
    RemoteLinkEnded,
    RemoteLockLost,
    RemoteNotFound,
    RemoteRefused,
    RemoteTimeout,
    RemoteUnauthorized,
    error_of,
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (model.Unauthorized, RemoteUnauthorized),
        (model.EntityNotFound, RemoteNotFound),
        (model.MessageNotFound, RemoteNotFound),
        (model.ServerBusy, RemoteBusy),
        (model.OperationTimeout, RemoteTimeout),
        (model.MessageLockLost, RemoteLockLost),
        (model.SessionLockLost, RemoteLockLost),
        (model.ArgumentError, RemoteRefused),
        (model.EntityDisabled, RemoteRefused),
        (model.MessageSizeExceeded, RemoteRefused),
    ],
)
def test_what_the_bridge_refuses_has_a_class_here(
    given: type[model.ServiceBusError], expected: type[RemoteError]
) -> None:
    """And says as the bridge does whether a retry helps."""
    found = error_of(given.condition, "words")

    assert type(found) is expected
    assert (found.condition, found.description) == (given.condition, "words")
    assert found.retryable is given.is_retryable


def test_links_and_connections_that_end() -> None:
    """May be made again."""
    assert isinstance(error_of("amqp:link:detach-forced", None), RemoteLinkEnded)
    lost = error_of("amqp:connection:forced", None)
    assert isinstance(lost, RemoteConnectionLost)
    assert lost.retryable
    assert not lost.in_doubt


@pytest.mark.parametrize(
    ("text", "pause_s"),
    [
        ("50009: Please wait 2 seconds and try again.", 2.0),
        ("wait 10 seconds", 10.0),
        ("The service is busy.", 0.0),
    ],
)
def test_a_busy_server_says_how_long_to_wait(text: str, pause_s: float) -> None:
    """In its description; 0 where it does not."""
    found = error_of("com.microsoft:server-busy", text)

    assert isinstance(found, RemoteBusy)
    assert found.pause_s == pause_s


def test_a_busy_server_is_given_its_pause_when_a_call_is_in_doubt() -> None:
    """What only reads is asked again then, and not before."""
    found = error_of("com.microsoft:server-busy", "Please wait 10 seconds and try again.")

    doubtful = in_doubt(found)

    assert isinstance(doubtful, RemoteBusy)
    assert (doubtful.pause_s, doubtful.retryable, doubtful.in_doubt) == (10.0, True, True)
    assert not found.in_doubt


def test_an_error_reads_as_a_sentence_with_its_condition() -> None:
    """The server's words come first."""
    assert str(error_of("amqp:not-found", "No q.")) == "No q. (amqp:not-found)"
    assert str(error_of("amqp:not-found", None)) == "amqp:not-found"
