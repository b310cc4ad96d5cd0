"""What tests ask over HTTP leaves no socket behind."""

from __future__ import annotations

import gc
import threading
import urllib.error
import warnings
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bridge.testing.http_answers import http_answer


class _Refusing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"wait a")

    def log_message(self, *_: object) -> None:
        pass


def test_a_refusal_that_nobody_closes_leaves_no_socket() -> None:
    """Its error stands in a circle of references, as those that a test has caught do."""
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    serving = threading.Thread(target=server.handle_request)
    serving.start()
    with pytest.raises(urllib.error.HTTPError) as caught:
        http_answer(f"http://127.0.0.1:{server.server_port}/")
    serving.join()
    server.server_close()
    error = caught.value
    assert error.code == 503
    error.circle = error  # type: ignore[attr-defined]
    del caught, error
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        gc.collect()
    assert not [str(each.message) for each in found]
