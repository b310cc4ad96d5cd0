"""Reports to leaders: which outcomes of transactions are carried out, once a second at most."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from bridge.broker.errors import BrokerError
from bridge.engine.sending.requests import new_identity
from bridge.engine.sending.sender import Sender
from bridge.machine.inbox.decided import KEPT_MAX
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.wire import envelope, inquiries
from bridge.wire.commits import LockedMessage
from bridge.wire.inquiries import MESSAGES_MAX

REPORT_S: Final = 1.0

log = logging.getLogger(__name__)


class CarriedOutReports:
    """Tells leaders which outcomes are carried out; what is not told is told again.

    A report that is lost for good does no harm: its outcomes are kept longer.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._due: dict[str, OrderedDict[LockedMessage, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"CarriedOutReports({sum(map(len, self._due.values()))})"

    def note(self, front: str, message: LockedMessage) -> None:
        """Have an outcome reported to the leader of a queue or topic."""
        due = self._due.setdefault(front, OrderedDict())
        due[message] = None
        if len(due) > KEPT_MAX:  # a leader keeps no more
            due.popitem(last=False)
        self._begin()

    def close(self) -> None:
        """Report what is due now, and nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._report(lambda front, messages, error: None)

    def _begin(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(REPORT_S, self._report, self._reported)

    def _report(
        self, reported: Callable[[str, list[LockedMessage], Exception | None], None]
    ) -> None:
        self._timer = None
        due, self._due = self._due, {}
        for front, each in due.items():
            messages = list(each)
            for at in range(0, len(messages), MESSAGES_MAX):
                part = messages[at : at + MESSAGES_MAX]
                body = inquiries.encode_carried_out(new_identity(), part)
                told = partial(reported, front, part)
                try:
                    self._sender.begin_publish(
                        names.front(front), "", envelope.SILENT_PROPERTIES, body, told
                    )
                except (BrokerError, ServiceBusError) as error:
                    reported(front, part, error)

    def _reported(self, front: str, messages: list[LockedMessage], error: Exception | None) -> None:
        if error is None:
            return
        log.info("report.failed entity=%s outcomes=%d error=%s", front, len(messages), error)
        if getattr(error, "is_retryable", False):  # else the entity is gone
            for each in messages:
                self.note(front, each)
