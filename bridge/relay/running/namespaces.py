"""The namespaces of a file's sides, each with one connection of this process."""

from __future__ import annotations

from bridge.relay.plan.side import Side
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import EntraToken, RemoteCredential, credential_in
from bridge.remote.errors import UNAUTHORIZED, RemoteUnauthorized
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.patience import Patience

ONCE = Patience(total_s=0)
"""One attempt: a route decides by itself when it goes on."""


def address_of(side: Side) -> RemoteAddress:
    """Return where a side is; ValueError: what the file says of it is no address."""
    return RemoteAddress.of(
        side.connection_string or side.host,
        custom_endpoint_address=side.custom_endpoint_address or None,
        ca_file=side.ca_file or None,
        websocket=side.websocket,
    )


def credential_of(side: Side) -> RemoteCredential:
    """Return what this process proves itself with at a side.

    Raises:
        ModuleNotFoundError: the login is by Entra ID, and azure-identity is missing.
        RemoteUnauthorized: the connection string has neither key nor signature.
    """
    if side.entra:
        return EntraToken.of_environment()
    found = credential_in(side.connection_string)
    if found is None:
        text = f"The connection string of {side.name!r} has neither key nor signature."
        raise RemoteUnauthorized(UNAUTHORIZED, text)
    return found


class Namespaces:
    """The namespaces of all sides, opened when somebody first needs one.

    Args:
        patience: how long calls are made again that have failed and are not in doubt.
    """

    def __init__(self, patience: Patience = ONCE) -> None:
        self._patience = patience
        self._opened: dict[str, RemoteNamespace] = {}
        self._administrations: dict[str, RemoteAdministration] = {}

    def of(self, side: Side) -> RemoteNamespace:
        """Return a side's namespace; raises what `address_of` and `credential_of` raise."""
        found = self._opened.get(side.name)
        if found is None:
            found = RemoteNamespace(address_of(side), credential_of(side), patience=self._patience)
            self._opened[side.name] = found
        return found

    def administration_of(self, side: Side) -> RemoteAdministration:
        """Return a side's administration, over HTTP; see `of`."""
        found = self._administrations.get(side.name)
        if found is None:
            found = RemoteAdministration(
                address_of(side), credential_of(side), patience=self._patience
            )
            self._administrations[side.name] = found
        return found

    async def close(self) -> None:
        """Close all connections; what is not settled is given back."""
        for administration in self._administrations.values():
            await administration.close()
        for namespace in self._opened.values():
            await namespace.close()
