"""A bridge for Azure's tests: on a virtual host of its own, in TLS, with rules and an issuer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from tests.acceptance.issuer import Issuer
from tests.acceptance.logins import ROLES, application, rule_of
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker
from tests.parity import addresses

APPLICATION = application("parity")
"""What the tests are to the issuer, whenever they ask for a credential."""


@contextmanager
def issuing(folder: Path) -> Iterator[Issuer]:
    """Start an issuer that keeps its certificate in a new folder in this one; end it at the end."""
    issuer = Issuer(Path(mkdtemp(prefix="issuer-", dir=folder)), [APPLICATION])
    try:
        yield issuer
    finally:
        issuer.close()


def trusted(bridge: Bridge, issuer: Issuer) -> Path:
    """Return a file with the authorities of both certificates."""
    assert bridge.ca is not None
    both = bridge.ca.with_name("trusted.pem")
    both.write_text(bridge.ca.read_text() + issuer.ca.read_text())
    return both


@contextmanager
def serving(
    broker: Broker, folder: Path, issuer: Issuer, *options: str, port: int | None = None
) -> Iterator[Bridge]:
    """Start a bridge that keeps its certificate and log in a new folder; end it at the end.

    Args:
        folder: the new folder is made in it.
        issuer: its application may do all.
        options: more flags of `busbridge serve`.
        port: at which clients find the bridge, if that is not its own.
    """
    own = Path(mkdtemp(prefix="bridge-", dir=folder))
    rules = own / "rules.json"
    issuers = {"issuers": [rule_of(issuer, ROLES["owner"])]}
    rules.write_text(json.dumps(addresses.rules() | issuers))
    flags = ("--auth", str(rules), "--data-dir", str(own), *options)
    with broker.fresh_vhost() as vhost:
        bridge = bridge_of(broker, vhost, *flags)
        try:
            # The Go SDK looks for `host:port` in the certificate when its endpoint has a port.
            names = f"{addresses.HOST},{addresses.LOCAL}:{port or bridge.port}"
            bridge.start(BUSBRIDGE_TLS_NAME=names)
            yield bridge
        finally:
            bridge.kill()
            (own / "log").write_text("\n".join(bridge.lines))
