"""Requests to the administration API as they travel through RabbitMQ, and their answers.

A request is a question whose fields are those of one over HTTP: method, path, query, If-Match and
an Atom document. It is published to an exchange of its own, so that RabbitMQ says who may; its
answer is `u16 status | UTF-8 document`.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from bridge.wire.basic import Table, text
from bridge.wire.sessions import content, string

ADMINISTER = "administer"
"""The question's `do`."""

_STATUS = struct.Struct(">H")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked.

    Attributes:
        path: percent-encoded, as in a URL.
        query: by name in lower case.
        etag: what If-Match says: "*" for an update, "" for none.
        host: by which the client calls the namespace; it comes back in the URLs of entities.
    """

    method: str
    path: str
    host: str
    query: Mapping[str, str] = field(default_factory=dict)
    etag: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is answered: the status that HTTP would have, and an Atom document or an error's."""

    status: int
    text: str = ""


Administer = Callable[[Request], Awaitable[Response]]


def encode_request(request: Request) -> Table:
    """Return the question."""
    return {
        "do": text(ADMINISTER),
        "method": text(request.method),
        "path": text(request.path),
        "host": text(request.host),
        "query": ("F", {name: text(value) for name, value in request.query.items()}),
        "etag": text(request.etag),
        "body": ("x", request.body),
    }


def decode_request(question: Table) -> Request:
    """Read what `encode_request` wrote.

    Raises:
        LookupError, ValueError, AttributeError: it is no such question.
    """
    query = cast(Table, question["query"][1])
    return Request(
        method=string(question, "method"),
        path=string(question, "path"),
        host=string(question, "host"),
        query={name: string(query, name) for name in query},
        etag=string(question, "etag"),
        body=content(question, "body"),
    )


def encode_response(response: Response) -> bytes:
    """Return the content of the answer."""
    return _STATUS.pack(response.status) + response.text.encode()


def decode_response(raw: bytes) -> Response:
    """Read what `encode_response` wrote.

    Raises:
        ValueError: it is no such answer.
    """
    try:
        return Response(status=_STATUS.unpack_from(raw)[0], text=raw[_STATUS.size :].decode())
    except struct.error as error:
        raise ValueError("the answer has no status") from error
