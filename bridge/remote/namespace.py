"""A remote namespace: one connection, and the senders, receivers and management on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, Self, TypeVar

from bridge.remote.address import RemoteAddress
from bridge.remote.authorization import Authorization
from bridge.remote.connection import RemoteConnection
from bridge.remote.credentials import RemoteCredential, SharedKey
from bridge.remote.errors import CONNECTION_FORCED, RemoteConnectionLost, RemoteUnauthorized
from bridge.remote.management import RemoteManagement
from bridge.remote.patience import Patience, Pause
from bridge.remote.proxy import is_this_machine
from bridge.remote.receiver import ReceiveMode, RemoteReceiver
from bridge.remote.sender import RemoteSender
from bridge.remote.session_receiver import RemoteSessionReceiver

Login = Literal["cbs", "plain"]

Attached = TypeVar("Attached")

CLOSED = "The namespace was closed by this client."


class RemoteNamespace:
    """A namespace of Service Bus, over one connection that comes back by itself.

    The connection is made by the first call that needs it, and made anew by the first that needs it
    after it was lost. An entity is named by its whole path as Azure writes it: `orders`,
    `events/Subscriptions/audit`, `orders/$DeadLetterQueue`. One that the address is not for is
    refused by RemoteOtherEntity, before anything is asked.

    Args:
        address: where the namespace is.
        credential: what this client proves itself with.
        login: how: by tokens put to `$cbs`, or by SASL PLAIN with a rule's name and key.
        patience: how long calls are made again that have failed and are not in doubt.

    Raises:
        ValueError: PLAIN without a shared key, or in clear text to another machine.
    """

    def __init__(
        self,
        address: RemoteAddress,
        credential: RemoteCredential,
        *,
        login: Login = "cbs",
        patience: Patience | None = None,
    ) -> None:
        plain = _plain(address, credential) if login == "plain" else None
        self.address = address
        self.patience = patience or Patience()
        self._pause = Pause(self.patience.clock)
        self._credential = credential
        self._plain = plain
        self._connection: RemoteConnection | None = None
        self._authorization: Authorization | None = None
        self._connecting = asyncio.Lock()
        self._managements: dict[str, RemoteManagement] = {}
        self._links: set[RemoteSender | RemoteReceiver] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<RemoteNamespace {self.address.url} {self._connection!r}>"

    async def sender(
        self,
        entity: str,
        *,
        relay_source: str | None = None,
        subscription: str | None = None,
        import_run: str | None = None,
    ) -> RemoteSender:
        """Attach a sender, with the right Send.

        Args:
            relay_source: the source that all messages are copied from (`wire.relay_source`), with
                the right Manage at a bridge; `RemoteSender.knows_source` says whether it is heeded.
            subscription: the only subscription of the topic that gets the messages; at a bridge
                alone, and with a source.
            import_run: the migration's run that imports them, with the right Manage at a bridge;
                the run holds the entity.

        Raises:
            RemoteRefused: the topic would give the messages to all of its subscriptions, or the
                entity would give them numbers of its own.
            RemoteError: the server refuses it, or is not reached.
        """
        made = RemoteSender(self, entity, relay_source, subscription, import_run)
        await made.attach()
        self._links.add(made)
        return made

    async def receiver(
        self,
        entity: str,
        mode: ReceiveMode = "peek-lock",
        credit: int = 0,
        *,
        until_settled: bool = False,
        once: bool = False,
    ) -> RemoteReceiver:
        """Attach a receiver, with the right Listen.

        Args:
            credit: how many messages the server may send ahead of `receive` (the SDKs' prefetch);
                in peek-lock mode alone.
            until_settled: a message uses its credit until it is settled, not until `receive`
                returns it: there are no more unsettled ones than `credit` then.
            once: a link that has ended is not attached again: `receive` raises why. What was on its
                way then is locked, and what stands behind it would come before it.

        Raises:
            ValueError: credit in receive-and-delete mode.
            RemoteError: the server refuses it, or is not reached.
        """
        made = RemoteReceiver(self, entity, mode, credit, until_settled=until_settled, once=once)
        await made.attach()
        self._links.add(made)
        return made

    async def session_receiver(
        self,
        entity: str,
        session_id: str | None = None,
        mode: ReceiveMode = "peek-lock",
        *,
        max_wait_s: float = 60.0,
        credit: int = 0,
        until_settled: bool = False,
    ) -> RemoteSessionReceiver:
        """Accept a session, with the right Listen.

        Args:
            session_id: the session; `None` for the next that has messages and no receiver.
            max_wait_s: how long to wait for the next session.
            credit, until_settled: see `receiver`.

        Raises:
            RemoteTimeout: no session had a message in time.
            RemoteError: the session is another's, or the server is not reached.
        """
        made = RemoteSessionReceiver(
            self, entity, session_id, mode, max_wait_s, credit, until_settled=until_settled
        )
        await made.attach()
        self._links.add(made)
        return made

    async def management(self, entity: str) -> RemoteManagement:
        """Return the operations at an entity's `$management`.

        Raises:
            RemoteError: the server refuses it, or is not reached.
        """
        found = self.management_of(entity)
        await found.attach()
        return found

    def management_of(self, entity: str) -> RemoteManagement:
        """Return the operations at an entity's `$management`, attached by the first of them."""
        return self._managements.setdefault(entity, RemoteManagement(self, entity))

    async def server_id(self) -> str:
        """Return the container-id by which the server opens: a bridge's is `CONTAINER_ID`.

        Raises:
            RemoteError: the server is not reached.
        """

        async def asked() -> str:
            return (await self._connected()).server_id

        return await self.patience.repeat(asked, is_repeatable=True)

    async def attached(
        self, entity: str, attach: Callable[[RemoteConnection], Awaitable[Attached]]
    ) -> Attached:
        """Attach links on the connection, on which this client has proved itself for an entity.

        Where an earlier token of this client is not taken any more, another one is put.

        Args:
            attach: attaches them on a connection; it is called a second time with another token.

        Raises:
            RemoteUnauthorized: the login or the token is refused, or gives no right to this.
            RemoteBusy: so does the server say, or the pause that it has asked for is not over.
            RemoteError: the server is not reached, or does not answer; one attempt was made.
        """
        self.address.check(entity)
        self._pause.check()
        audience = self.address.audience(entity)
        connection = await self._connected()
        authorization = self._authorization
        if authorization is None:
            return await attach(connection)
        is_known = authorization.has_token(audience)
        await authorization.ensure(audience)
        try:
            return await attach(connection)
        except RemoteUnauthorized:
            authorization.forget(audience)
            if not is_known or not connection.is_open:
                raise
        await authorization.ensure(audience)
        return await attach(connection)

    async def _connected(self) -> RemoteConnection:
        """Return the connection; it is made if there is none."""
        async with self._connecting:
            if self._is_closed:
                raise RemoteConnectionLost(CONNECTION_FORCED, CLOSED, False)
            if self._connection is None or not self._connection.is_open:
                await self._drop()
                connection = RemoteConnection(self.address, self._plain, self._pause)
                await connection.open()
                self._connection = connection
                if self._plain is None:
                    self._authorization = Authorization(connection, self._credential)
            return self._connection

    async def _drop(self) -> None:
        if self._authorization is not None:
            self._authorization.close()
        if self._connection is not None:
            await self._connection.close()
        self._connection = self._authorization = None

    def forget(self, link: RemoteSender | RemoteReceiver) -> None:
        """Close a sender or receiver no more with the namespace: it is closed."""
        self._links.discard(link)

    async def close(self) -> None:
        """Close all senders and receivers, then the connection."""
        await asyncio.gather(*(each.close() for each in list(self._links)))
        async with self._connecting:
            self._is_closed = True
            await self._drop()


def _plain(address: RemoteAddress, credential: RemoteCredential) -> SharedKey:
    if not isinstance(credential, SharedKey):
        raise ValueError("A login by PLAIN needs the name of a rule and its key.")
    if not address.tls and not is_this_machine(address.host):
        raise ValueError(f"PLAIN would send the key in clear text to {address.host}: use TLS.")
    return credential
