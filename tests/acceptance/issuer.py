"""An issuer of tokens: a certified OpenID Connect provider over TLS, at Entra's paths."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridge.broker.node.ports import Ports
from tests.acceptance.driver import node_program
from tests.brokers.certificates import make_certificates

TENANT = "7d6f2c1e-90a4-4c55-b7b1-3d1d0a5e8f42"
LEEWAY_S = 300
"""How far the bridge lets an issuer's clock be off."""


@dataclass(frozen=True)
class Application:
    """What logs in with an id and a secret of its own.

    Attributes:
        claims: what stands in its tokens beside what each has.
    """

    id: str
    secret: str
    claims: dict[str, Any] = field(default_factory=dict)


class Issuer:
    """A running issuer, in a process of its own.

    Attributes:
        url: what SDKs call the authority, such as `https://localhost:8443`.
        name: what its tokens have as `iss`, and where its discovery begins.
        ca: the file of the authority that its certificate is by.
    """

    def __init__(self, folder: Path, applications: Sequence[Application]) -> None:
        make_certificates(folder)
        self._ports = Ports(1)  # held as long as this object lives
        (port,) = self._ports.numbers
        self.url = f"https://localhost:{port}"
        self.name = f"{self.url}/{TENANT}/v2.0"
        self.ca = folder / "ca.pem"
        self._process = subprocess.Popen(
            node_program("issuer.mjs"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._ask(
            {
                "port": port,
                "certificate": str(folder / "server.pem"),
                "key": str(folder / "server.key"),
                "tenant": TENANT,
                "clients": [asdict(each) for each in applications],
            }
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=120)

    def give(
        self, application: str, lifetime_s: int, *, slow_s: int = 0, issuer: str | None = None
    ) -> None:
        """Let the tokens that an application asks for from now on live so long.

        Args:
            slow_s: how far behind the issuer's clock is; who asks is told the whole lifetime.
            issuer: another `iss` than its own, such as the one that Entra writes in its v1 tokens.
        """
        self._ask(["tokens", application, lifetime_s, slow_s, issuer])

    def give_for(self, application: str, lifetime_s: int, *, told_s: int | None = None) -> None:
        """Let its tokens hold at the bridge for so long from now: they have used its leeway up.

        Args:
            told_s: the lifetime that who asks is told; SDKs renew at some time before its end.
        """
        told_s = told_s or lifetime_s
        self.give(application, told_s, slow_s=LEEWAY_S + told_s - lifetime_s)

    def rotate(self) -> None:
        """Put another key in place of the one there was."""
        self._ask(["rotate"])

    @contextmanager
    def away(self) -> Iterator[None]:
        """Hang up on everybody."""
        self._ask(["away", True])
        try:
            yield
        finally:
            self._ask(["away", False])

    def given(self, application: str) -> int:
        """Return how many tokens an application was given."""
        return int(self._ask(["given", application]))

    def _ask(self, what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the issuer has ended"
        return json.loads(line)
