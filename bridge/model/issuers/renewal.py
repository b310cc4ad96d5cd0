"""When an issuer's keys are fetched, and for how long they are kept.

none ──fetched──► fresh ──300 s──► fetched again ...
                    └──failed──► kept for 24 h, asked for every 30 s ──► none
"""

from __future__ import annotations

from bridge.model.issuers.web_keys import KeySet

APART_S = 10.0
"""The shortest time between the begins of two fetches."""

RENEW_S = 300.0
RETRY_S = 30.0

RENEW_FILE_S = 10.0
"""The same for a file: a change is in force within 15 s."""

KEPT_S = 86_400.0
"""How long keys are kept while their issuer is away."""


class KeysRenewal:
    """The keys of one issuer, and the times of their fetches.

    Args:
        is_file: the keys are in a file, which is read again and again, and kept for ever.

    Attributes:
        error: why the last fetch has failed; "" if it has not.
        failures: the count of failed fetches.
        fetched_s: when the present keys came; `None`: never.
    """

    def __init__(self, *, is_file: bool = False) -> None:
        self._renew_s = RENEW_FILE_S if is_file else RENEW_S
        self._retry_s = RENEW_FILE_S if is_file else RETRY_S
        self._is_kept = is_file
        self._keys: KeySet | None = None
        self._begun_s: float | None = None
        self._is_asked = False
        self.error = ""
        self.failures = 0
        self.fetched_s: float | None = None

    def __repr__(self) -> str:
        return f"KeysRenewal(keys={self._keys!r}, error={self.error!r})"

    def keys(self, now_s: float) -> KeySet | None:
        """Return the keys, unless there are none that are young enough."""
        if self.fetched_s is None or (not self._is_kept and now_s - self.fetched_s > KEPT_S):
            return None
        return self._keys

    def ask(self) -> None:
        """Note that a key is missed: the next fetch is sooner."""
        self._is_asked = True

    @property
    def due_s(self) -> float:
        """When the next fetch is to begin; 0: at once."""
        if self._begun_s is None:
            return 0.0
        if self._is_asked:
            return self._begun_s + APART_S
        return self._begun_s + (self._retry_s if self.error else self._renew_s)

    def begin(self, now_s: float) -> None:
        """Note that a fetch begins."""
        self._begun_s = now_s
        self._is_asked = False

    def succeed(self, keys: KeySet, now_s: float) -> bool:
        """Take fetched keys; return whether they differ from those before."""
        before, self._keys = self._keys, keys
        self.fetched_s, self.error = now_s, ""
        return before is None or _ids(before) != _ids(keys)

    def fail(self, error: str) -> bool:
        """Note a failed fetch; return whether it is another failure than the one before."""
        is_new, self.error = error != self.error, error
        self.failures += 1
        return is_new


def _ids(keys: KeySet) -> list[str | None]:
    return [key.kid for key in keys.keys]
