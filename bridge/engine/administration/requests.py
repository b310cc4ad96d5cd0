"""Requests to the administration API that come through RabbitMQ."""

from __future__ import annotations

from bridge.engine.peers import Peers, Question
from bridge.model.errors import Unauthorized
from bridge.topology import names
from bridge.wire.administration import ADMINISTER, Administer, decode_request, encode_response
from bridge.wire.reply import encode_found


class AdministrationRequests:
    """Hands requests on, if RabbitMQ's permissions allow them to who asks.

    Args:
        administer: answers requests to the administration API.
    """

    def __init__(self, peers: Peers, administer: Administer) -> None:
        self._administer = administer
        peers.answer(ADMINISTER, self._answer)

    async def _answer(self, question: Question) -> bytes:
        if question.exchange != names.ADMINISTRATION:
            raise Unauthorized(
                f"Who administers entities needs RabbitMQ's permission to write to the exchange "
                f"{names.ADMINISTRATION}, and asks there."
            )
        response = await self._administer(decode_request(question.table))
        return encode_found(encode_response(response))
