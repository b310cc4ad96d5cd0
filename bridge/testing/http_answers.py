"""Answers over HTTP for tests, whose connections are closed before anybody sees them."""

from __future__ import annotations

import io
import urllib.error
import urllib.request


def http_answer(request: urllib.request.Request | str, timeout_s: float = 120) -> bytes:
    """Return the body of an answer.

    Raises:
        urllib.error.HTTPError: the answer is a refusal. Its body is read and its connection closed:
            else the socket lives until somebody closes the error, or Python complains of it in
            another test.
    """
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            said = io.BytesIO(error.read())
        raise urllib.error.HTTPError(
            error.url, error.code, error.reason, error.headers, said
        ) from None
