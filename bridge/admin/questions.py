"""The administration API over RabbitMQ: what administration clients of the library ask for."""

from __future__ import annotations

from bridge.admin.answers import Answer, Asked, answered
from bridge.admin.operations import Operations
from bridge.admin.target import parse_target
from bridge.wire.administration import Request, Response


class Questions:
    """Answers clients that are on RabbitMQ themselves, as the service over HTTP does.

    Who may write to the exchange of these questions, as RabbitMQ has checked, may do all.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def answer(self, request: Request) -> Response:
        """Answer one request; what is refused, or fails, is answered in Azure's form."""
        answer = await answered(self._answer(request), request.host, request.path)
        return Response(status=answer.status, text=answer.text)

    async def _answer(self, request: Request) -> Answer:
        target = parse_target(request.path)
        self._operations.check(request.method, target, None)
        asked = Asked(
            target=target,
            access=None,
            base=f"sb://{request.host}",
            host=request.host,
            query=request.query,
            body=request.body,
            etag=request.etag,
        )
        return await self._operations.carry_out(request.method, asked)
