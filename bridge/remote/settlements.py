"""Settlements that a server has not confirmed yet."""

from __future__ import annotations

import asyncio
from typing import Any

from bridge.machine.amqp10.client_link import ClientIncomingLink
from bridge.machine.amqp10.events import DeliveriesSettled
from bridge.machine.amqp10.link import IncomingLink
from bridge.remote.attachment import in_doubt
from bridge.remote.errors import TIMEOUT, RemoteError, RemoteRefused, RemoteTimeout, answer_of
from bridge.wire.amqp10.performatives import Error, Outcome, Rejected
from bridge.wire.link_properties import DEAD_LETTER

NOT_SETTLED = "busbridge:not-settled"
"""Our own: the server has answered something else than what it was told."""


class Settlements:
    """The deliveries of one receiver whose outcome was told, and that are not confirmed.

    Args:
        entity: named in errors.
    """

    def __init__(self, entity: str) -> None:
        self._entity = entity
        self._waiting: dict[tuple[IncomingLink, int], asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, place: tuple[IncomingLink, int]) -> bool:
        return place in self._waiting

    def ask(self, link: ClientIncomingLink, number: int, outcome: Outcome) -> asyncio.Future[Any]:
        """Tell an outcome; the result is the server's answer, an outcome too."""
        link.tell_outcome(number, outcome, is_settled=False)
        found = self._waiting[link, number] = asyncio.get_running_loop().create_future()
        return found

    def on_settled(self, event: DeliveriesSettled) -> None:
        """Take a server's answer."""
        for each in event.delivery_ids:
            found = self._waiting.pop((event.link, each), None)
            if found is not None and not found.done():
                found.set_result(event.outcome)

    def lose(self, link: Any, error: RemoteError) -> None:
        """Fail what waits for an answer on a link that has ended."""
        for key in [each for each in self._waiting if each[0] is link]:
            found = self._waiting.pop(key)
            if not found.done():
                found.set_exception(in_doubt(error))
                found.exception()  # it may be that nobody waits any more

    async def results(
        self, asked: list[asyncio.Future[Any]], outcome: Outcome, within_s: float
    ) -> list[RemoteError]:
        """Wait for the answers, and return the errors among them."""
        done, missing = await asyncio.wait(asked, timeout=within_s)
        errors: list[RemoteError] = []
        if missing:
            text = f"{self._entity} has not confirmed a settlement within {within_s:.0f} s."
            errors.append(in_doubt(RemoteTimeout(TIMEOUT, text)))
            self._waiting = {key: it for key, it in self._waiting.items() if it not in missing}
        for each in done:
            failed = each.exception()
            found = failed if isinstance(failed, RemoteError) else _refusal(outcome, each.result())
            if found is not None:
                errors.append(found)
        return errors

    async def wait(self, within_s: float) -> None:
        """Wait for all answers, for some time; nothing is raised."""
        if self._waiting:
            await asyncio.wait(list(self._waiting.values()), timeout=within_s)


def _refusal(asked: Any, answered: Any) -> RemoteError | None:
    """Return the error of a server's answer that is not what was asked."""
    if isinstance(answered, Rejected):
        error = answered.error if isinstance(answered.error, Error) else None
        is_asked = error is None or error.condition == DEAD_LETTER
        if isinstance(asked, Rejected) and is_asked:
            return None
        if error is None:
            return RemoteRefused(NOT_SETTLED, "The server has refused the settlement.")
        return answer_of(error.condition, error.description)
    if answered is None or type(answered) is type(asked):
        return None  # a server may settle without saying again what it was told
    return RemoteRefused(NOT_SETTLED, f"The server has settled it as {answered!r} instead.")
