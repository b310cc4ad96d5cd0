"""The REST API of messages through Python's own HTTP client."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlsplit

from bridge.model.access import sign

KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
ANSWER_S = 120.0


def token(
    bridge: Any, path: str = "", *, for_s: float = 600, name: str = KEY_NAME, key: str = KEY
) -> str:
    """Return a token for a path of a bridge."""
    resource = quote_plus(f"http://localhost:{bridge.port}/{path}")
    expires_s = int(time.time() + for_s)
    signature = quote_plus(sign(resource, key, expires_s))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_s}&skn={name}"


@dataclass
class Answer:
    """An answer: its status, its fields as they came, and its body."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """The fields by name."""
        return dict(self.fields)

    @property
    def broker(self) -> dict[str, Any]:
        """BrokerProperties."""
        return json.loads(self.headers["BrokerProperties"])

    @property
    def place(self) -> str:
        """The path in Location."""
        return urlsplit(self.headers["Location"]).path

    @property
    def custom(self) -> dict[str, Any]:
        """The custom properties, decoded."""
        known = {"brokerproperties", "content-type", "content-length", "date", "server", "location"}
        return {n: json.loads(v) for n, v in self.fields if n.lower() not in known}


@dataclass
class Rest:
    """A client of one bridge; each request has a connection of its own."""

    bridge: Any
    authorization: str | None = field(default=None, repr=False)

    def ask(
        self, method: str, path: str, body: bytes | Iterable[bytes] = b"", **fields: str
    ) -> Answer:
        """Make a request; an underscore in a field's name is a hyphen."""
        said = {name.replace("_", "-"): value for name, value in fields.items()}
        authorization = self.authorization or token(self.bridge)
        connection = http.client.HTTPConnection("localhost", self.bridge.port, timeout=ANSWER_S)
        with closing(connection):
            connection.request(method, path, body, {"Authorization": authorization, **said})
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())

    def send(
        self, entity: str, body: str | bytes, broker: dict[str, Any] | None = None, **fields: str
    ) -> Answer:
        """Send one message."""
        content = body.encode() if isinstance(body, str) else body
        if broker is not None:
            fields["BrokerProperties"] = json.dumps(broker)
        return self.ask("POST", f"/{entity}/messages", content, **fields)

    def send_batch(self, entity: str, messages: Any) -> Answer:
        """Send a batch."""
        content = json.dumps(messages).encode()
        return self.ask("POST", f"/{entity}/messages", content, Content_Type=BATCH_TYPE)

    def lock(self, entity: str, timeout_s: float = 60) -> Answer:
        """Receive and lock a message."""
        return self.ask("POST", f"/{entity}/messages/head?timeout={timeout_s:g}")

    def take(self, entity: str, timeout_s: float = 60) -> Answer:
        """Receive and delete a message."""
        return self.ask("DELETE", f"/{entity}/messages/head?timeout={timeout_s:g}")
