"""Requests to the administration API through RabbitMQ, and their answers.

A request is a question with the fields of an HTTP request: method, path, query, If-Match and an
Atom document. Clients publish it to an exchange of its own, so that RabbitMQ's permissions apply to
it. The answer is `u16 status | UTF-8 document`.
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
    """A request to the administration API.

    Attributes:
        path: percent-encoded, as in a URL.
        query: the query's values, by name in lower case.
        etag: the value of If-Match: "*" for an update, "" for none.
        host: the client's name of the namespace, which the URLs of entities in the answer have.
    """

    method: str
    path: str
    host: str
    query: Mapping[str, str] = field(default_factory=dict)
    etag: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer: the status as in HTTP, and an Atom document or the document of an error."""

    status: int
    text: str = ""


Administer = Callable[[Request], Awaitable[Response]]


def encode_request(request: Request) -> Table:
    """Return the question of a request."""
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
    """Return the request of a question.

    Raises:
        LookupError, ValueError, AttributeError: the table is no such question.
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
    """Return the response in the content of an answer.

    Raises:
        ValueError: the bytes are no such answer.
    """
    try:
        return Response(status=_STATUS.unpack_from(raw)[0], text=raw[_STATUS.size :].decode())
    except struct.error as error:
        raise ValueError("the answer has no status") from error
