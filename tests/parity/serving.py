"""A bridge for Azure's tests: on a virtual host of its own, in TLS, with rules of access."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker
from tests.parity import addresses


@contextmanager
def serving(
    broker: Broker, folder: Path, *options: str, port: int | None = None
) -> Iterator[Bridge]:
    """Start a bridge that keeps its certificate and log in a new folder; end it at the end.

    Args:
        folder: the new folder is made in it.
        options: more flags of `busbridge serve`.
        port: at which clients find the bridge, if that is not its own.
    """
    own = Path(mkdtemp(prefix="bridge-", dir=folder))
    rules = own / "rules.json"
    rules.write_text(json.dumps(addresses.rules()))
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
