"""The administration API over RabbitMQ, for administration clients of the library."""

from __future__ import annotations

from bridge.admin.answers import Asked, HttpAnswer, answered
from bridge.admin.operations import Operations
from bridge.admin.target import parse_target
from bridge.wire.administration import Request, Response


class Questions:
    """Answers clients that are on RabbitMQ themselves, as `Service` does over HTTP.

    A client may do everything: RabbitMQ has checked its right to write to the exchange of these
    questions.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def answer(self, request: Request) -> Response:
        """Answer one request; a refusal or a failure becomes an error in Azure's form."""
        answer = await answered(self._answer(request), request.method, request.host, request.path)
        return Response(status=answer.status, text=answer.text)

    async def _answer(self, request: Request) -> HttpAnswer:
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
