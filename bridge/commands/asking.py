"""Requests of a command to the administration of its namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bridge.commands.output import Output
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.remote.administration import RemoteAdministration


@asynccontextmanager
async def asking(target: NamespaceLogin, output: Output) -> AsyncIterator[RemoteAdministration]:
    """Yield the administration of a namespace; who waits for it above a second sees so."""
    from bridge.remote.administration import RemoteAdministration

    with output.progress(None, f"asking {target.name}"):
        async with RemoteAdministration(target.address, target.credential) as administration:
            yield administration
