"""What Azure's tests of its JavaScript client ask of a service, with the unmodified client.

npm does not have those tests, so they are told again here: each scenario bears the file and the
title of its source. What other tests claim is not told twice (`test_javascript.py`,
`test_administration_javascript.py`, `test_batch_delete_javascript.py`); what never leaves the
client, and tracing, is not told at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.driver import Outcome, node_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

BOTH = (
    "deferredMessage: Empty array as input throws no error",
    "deferredMessage: Abandoning a deferred message puts it back to the deferred queue.",
    "deferredMessage: Deferring a deferred message puts it back to the deferred queue.",
    "deferredMessage: Deadlettering a deferred message moves it to dead letter queue.",
    "propsToModify: dead lettering a deferred message",
    "propsToModify: abandoning a deferred message",
    "propsToModify: deferring a deferred message",
    "propsToModify: dead lettering a typical received message",
    "propsToModify: abandoning a typical received message",
    "propsToModify: deferring a typical received message",
    "batchReceiver: complete() removes message",
    "batchReceiver: abandon() retains message with incremented deliveryCount",
    "batchReceiver: Multiple abandons until maxDeliveryCount.",
    "batchReceiver: deadLetter() moves message to deadletter queue",
    "batchReceiver: cannot settle peeked message",
    "batchReceiver: Throws error when dead lettering a dead lettered message",
    "batchReceiver: Abandon a message received from dead letter queue",
    "batchReceiver: Multiple sequential receiveMessages calls",
    "batchReceiver: No settlement of the message is retained with incremented deliveryCount",
    "batchReceiver: Receive n messages but queue only has m messages, where m < n",
    "receiveAndDeleteMode: No settlement of the message removes message",
    *(
        f"receiveAndDeleteMode: With auto-complete {word}, no settlement of the message removes"
        " message"
        for word in ("enabled", "disabled")
    ),
    "receiveAndDeleteMode: Receive Deferred messages in ReceiveAndDelete mode",
    "sendAndSchedule: Send single message",
    "sendAndSchedule: Send Array of messages",
    "sendAndSchedule: Schedule with empty input does not throw error",
    "sendAndSchedule: Schedule multiple messages",
    "sendAndSchedule: Cancel multiple Scheduled messages",
    "peekMessagesOptions: peek messages of a queue without their bodies",
    "peekMessagesOptions: peek messages of a subscription without their bodies",
    "amqpAnnotatedMessage: value: received and sent again as they are",
    "amqpAnnotatedMessage: sequence: received and sent again as they are",
    "amqpAnnotatedMessage: data: received and sent again as they are",
    "amqpAnnotatedMessage: send, receive, verify props, and complete()",
    "amqpAnnotatedMessage: scheduleMessages",
)
"""Told of a queue (or subscription), and of one that requires sessions."""

SCENARIOS = (
    *BOTH,
    *(f"{title} - sessions" for title in BOTH),
    "deferredMessage: renewLock on a deferred message",
    "batchReceiver: Defer a message received from dead letter queue",
    "batchReceiver: can receive and settle messages after a disconnect",
    "managementClient: can receive and settle messages after a disconnect",
    "managementClient: schedule can receive and settle messages after a disconnect",
    "backupMessageSettlement: complete() removes message",
    "backupMessageSettlement: abandon() retains message with incremented deliveryCount",
    "backupMessageSettlement: defer() moves message to deferred queue",
    "backupMessageSettlement: deadLetter() moves message to deadletter queue",
    "backupMessageSettlement: Lock renewal for a message",
    "sessionsTests: acceptNextSession() No sessionId on empty queue throws OperationTimeoutError",
    "sessionsTests: Batch Receiver: no messages received for invalid sessionId",
    "sessionsTests: Testing getState and setState",
    "sessionsTests: calls processError and closes the link",
    "sessionsRequiredCleanEntityTests: Peek session of a queue: acceptSession(sessionId)",
    "sessionsRequiredCleanEntityTests: Peek session of a queue: acceptNextSession()",
    "sessionsRequiredCleanEntityTests: Peek session of a subscription: acceptSession(sessionId)",
    "sessionsRequiredCleanEntityTests: Peek session of a subscription: acceptNextSession()",
    "sessionsRequiredCleanEntityTests: complete() removes message from random session",
    "renewLockSessions: Batch Receiver: renewLock() resets lock duration each time",
    "renewLockSessions: Streaming Receiver: complete() after lock expiry with auto-renewal disabled"
    " throws error",
    "renewLockSessions: Streaming Receiver: lock will not expire until configured time",
    "ruleManager: list rules by page",
    "ruleManager: created true filter works",
    "ruleManager: created correlation filter on the messages works",
    "ruleManager: created correlation filter with action works",
    "ruleManager: created sql filter on the message property works",
    "ruleManager: created sql filter with action works",
)

LONGEST_S = 900
pytestmark = pytest.mark.timeout(LONGEST_S)

ENTITIES: dict[str, Any] = {"other": {}}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program; several of its scenarios at a time."""
    return run_scenarios(
        node_program("azure.mjs"),
        bridge.connection_string,
        "azure",
        timeout_s=LONGEST_S,
        ADMINISTRATION=connection_string(bridge.port),
        NODE_EXTRA_CA_CERTS=str(bridge.ca),
    )
