"""The keys of one issuer, fetched and renewed in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from bridge.access.fetching import FetchFailed, fetch_keys
from bridge.background.supervisor import Standing, Supervisor
from bridge.model.errors import ArgumentError, ServerBusy
from bridge.model.issuers.issuer import Issuer
from bridge.model.issuers.renewal import APART_S, KeysRenewal
from bridge.model.issuers.web_keys import KeySet
from bridge.model.issuers.web_token import KeyAwaited

_log = logging.getLogger("busbridge.access")

WAIT_S = APART_S
"""The longest wait of a token for a key; a fetch begins within this time."""

WAITING_MAX = 100
"""Tokens of one issuer that wait for a key at a time."""

FETCH_S = 10.0
"""Deadline of one fetch, discovery included."""


class IssuerKeys:
    """The keys of one issuer.

    Args:
        fetch: gets the keys of an issuer.
        clock: a monotonic time in seconds.

    Attributes:
        renewal: the keys, and when they are fetched next.
        waiting: the count of tokens that wait for a key.
    """

    def __init__(
        self,
        issuer: Issuer,
        *,
        fetch: Callable[[Issuer], Awaitable[KeySet]] = fetch_keys,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = issuer
        self.renewal = KeysRenewal(is_file=bool(issuer.keys.file))
        self.waiting = 0
        self._fetch = fetch
        self._clock = clock
        self._wanted = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._standing: Standing | None = None

    def __repr__(self) -> str:
        return f"<IssuerKeys {self.issuer} {self.renewal!r}>"

    @property
    def current(self) -> KeySet | None:
        """The keys; `None` when there are none, or when their issuer is away for too long."""
        return self.renewal.keys(self._clock())

    @property
    def age_s(self) -> float | None:
        """How long ago the keys came; `None`: never."""
        fetched_s = self.renewal.fetched_s
        return None if fetched_s is None else self._clock() - fetched_s

    @property
    def is_file_faulty(self) -> bool:
        """Whether the keys are in a file that cannot be used as it is."""
        return bool(self.issuer.keys.file and self.renewal.error)

    @property
    def sentence(self) -> str:
        """What health says of a failed fetch."""
        age_s = self.age_s
        kept = "there are none"
        if age_s is not None:
            since = datetime.fromtimestamp(time.time() - age_s, UTC)
            kept = f"those of {since:%Y-%m-%dT%H:%M:%SZ} are kept"
            if self.current is None:
                kept = "those from before are too old"
        return f"No keys of the issuer {self.issuer} could be had ({self.renewal.error}): {kept}."

    # -- waiting for a key

    async def fetched(self, awaited: KeyAwaited) -> None:
        """Wait until a fetch has ended, 10 s at most; the fetch comes sooner for that.

        Raises:
            Unauthorized, ServerBusy: too many tokens wait, or the issuer was just asked in vain.
        """
        self.renewal.ask()
        self._wanted.set()
        if self.current is None and self.renewal.error:
            raise awaited.refusal
        if self.waiting >= WAITING_MAX:
            raise ServerBusy(f"{WAITING_MAX} tokens wait for a key of their issuer; try again.")
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        self.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await asyncio.shield(self._next)
        finally:
            self.waiting -= 1

    # -- fetching

    def start(self, supervisor: Supervisor) -> None:
        """Begin to fetch."""
        if self._standing is None:
            self._standing = supervisor.keep("issuer keys", self.run, subject=str(self.issuer))

    def cancel(self) -> None:
        """Fetch no more."""
        if self._standing is not None:
            self._standing.task.cancel()

    async def stop(self) -> None:
        """Fetch no more, and wait for the end of what is under way."""
        standing, self._standing = self._standing, None
        if standing is not None:
            standing.task.cancel()
            await asyncio.gather(standing.task, return_exceptions=True)

    async def run(self) -> None:
        """Fetch whenever it is due, for ever."""
        while True:
            left_s = self.renewal.due_s - self._clock()
            if left_s <= 0:
                await self.fetch_now()
                continue
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wanted.wait()

    async def fetch_now(self) -> None:
        """Fetch once; a failure leaves the keys as they are."""
        self.renewal.begin(self._clock())
        try:
            async with asyncio.timeout(FETCH_S):
                keys = await self._fetch(self.issuer)
        except TimeoutError:
            self._fail(f"{self.issuer.keys} did not answer within {FETCH_S:g} s")
        except (FetchFailed, ArgumentError) as error:
            self._fail(str(error))
        except Exception as error:
            self._fail(repr(error))
            raise
        else:
            if self.renewal.succeed(keys, self._clock()):
                _log.info("issuer.keys issuer=%r count=%d", str(self.issuer), len(keys.keys))
        finally:
            done, self._next = self._next, None
            if done is not None and not done.done():
                done.set_result(None)

    def _fail(self, error: str) -> None:
        if self.renewal.fail(error):
            _log.warning("issuer.keys_failed issuer=%r reason=%r", str(self.issuer), error)
