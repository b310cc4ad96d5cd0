"""The one place where tokens and keys are verified, for AMQP, administration and REST."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from bridge.access.issuer_keys import IssuerKeys
from bridge.background.supervisor import Supervisor
from bridge.model.access import is_signature, verify_key, verify_token
from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import AccessRuleSet, Segments
from bridge.model.claims import Claims
from bridge.model.errors import Unauthorized
from bridge.model.issuers.granting import lacks_groups
from bridge.model.issuers.issuer import Issuer
from bridge.model.issuers.web_keys import KeySet
from bridge.model.issuers.web_token import KeyAwaited, WebToken, verify_web_token

_log = logging.getLogger("busbridge.access")

_NO_ISSUER = (
    "MalformedToken: Tokens of Microsoft Entra, or of another issuer, are not taken here: the "
    "rules file (--auth) has no issuers."
)


TOLD_MAX = 1_000
"""Subjects whose groups are missing of which the log is told."""


class Access:
    """Verifies what clients show, and reckons their rights.

    Args:
        policy: the rules and issuers of the rules file.
        now_s: the wall clock, seconds since 1970 UTC.
        clock: a monotonic time in seconds, for the ages of keys.

    Attributes:
        generation: rises with each change of rules or issuers.
        file_fault: why the present rules file is not in force; "" when it is.
        on_changed: called after each change.
    """

    def __init__(
        self,
        policy: AccessPolicy | AccessRuleSet | None = None,
        *,
        now_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(policy, AccessRuleSet):
            policy = AccessPolicy(policy)
        self._of_file = policy or AccessPolicy()
        self._of_definitions = AccessRuleSet()
        self.policy = self._of_file
        self.now_s = now_s
        self._clock = clock
        self.generation = 0
        self.file_fault = ""
        self.on_changed: list[Callable[[], None]] = []
        self._keys: dict[str, IssuerKeys] = {}
        self._told: set[tuple[str, str]] = set()
        self._supervisor: Supervisor | None = None
        self._renew_keys()

    def __repr__(self) -> str:
        return f"<Access issuers={len(self.policy.issuers)} generation={self.generation}>"

    # -- what clients show

    def verify(self, text: str, scope: Segments = (), *, grace_s: float = 0.0) -> Claims:
        """Return the claims of a token; its form decides what it is.

        Args:
            scope: the path that a web token is put for: it gives its rights there and below.
            grace_s: how long past its expiry a shared access signature is accepted.

        Raises:
            Unauthorized, ServerBusy: in Azure's words: it is refused.
            KeyAwaited: see `verified`.
        """
        if is_signature(text) or (not self.policy.issuers and text.count(".") != 2):
            return verify_token(text, self.policy.rules, self.now_s(), grace_s=grace_s)
        if not self.policy.issuers:
            raise Unauthorized(_NO_ISSUER)
        token = verify_web_token(text, self.policy, self._keys_of, self.now_s())
        self._note_overage(token)
        grants = token.grants(self.policy, scope)
        return Claims(grants=grants, expires_s=token.expires_s, proof=token)

    async def verified(self, text: str, scope: Segments = (), *, grace_s: float = 0.0) -> Claims:
        """Return the claims of a token as `verify` does, once the key of its signature is known.

        An unknown key waits for the next fetch of its issuer's keys, 10 s at most.

        Raises:
            Unauthorized, ServerBusy: in Azure's words: it is refused.
        """
        try:
            return self.verify(text, scope, grace_s=grace_s)
        except KeyAwaited as error:
            await self.next_keys(error)
        try:
            return self.verify(text, scope, grace_s=grace_s)
        except KeyAwaited as error:
            raise error.refusal from None

    async def next_keys(self, awaited: KeyAwaited) -> None:
        """Wait for the next fetch of an issuer's keys, 10 s at most.

        Raises:
            Unauthorized, ServerBusy: it cannot be waited for.
        """
        keys = self._keys.get(str(awaited.issuer))
        if keys is None:
            raise awaited.refusal
        await keys.fetched(awaited)

    def verify_key(self, rule_name: str, key: str) -> Claims:
        """Return the claims of a rule's name with one of the rule's keys (SASL PLAIN).

        Raises:
            Unauthorized: no rule of this name has this key.
        """
        return verify_key(rule_name, key, self.policy.rules)

    def reckoned(self, claims: Claims, scope: Segments) -> Claims:
        """Return the claims that were put for a path with the rights that the rules give now."""
        grants = claims.proof.grants(self.policy, scope)
        return Claims(grants=grants, expires_s=claims.expires_s, proof=claims.proof)

    def _note_overage(self, token: WebToken) -> None:
        """Tell the log, once for each subject, of groups that are not in the token."""
        issuer, told = self.policy.by_name[token.issuer], (token.issuer, token.subject)
        if told in self._told or len(self._told) >= TOLD_MAX:
            return
        if lacks_groups(issuer, token.claims):
            self._told.add(told)
            _log.warning("token.groups_left_out subject=%r issuer=%r", token.subject, token.issuer)

    # -- what they are verified by

    def replace(self, policy: AccessPolicy) -> bool:
        """Take another rules file's content; return whether it says something else."""
        self._of_file = policy
        return self._change()

    def take_definitions(self, rules: AccessRuleSet) -> None:
        """Take the rules in entities' definitions, which hold beside those of the file."""
        self._of_definitions = rules
        self._change()

    def _change(self) -> bool:
        policy = self._of_file.with_rules(self._of_definitions)
        if policy == self.policy:
            return False
        self.policy = policy
        self.generation += 1
        self._told.clear()
        self._renew_keys()
        for heed in self.on_changed:
            heed()
        return True

    def start(self, supervisor: Supervisor) -> None:
        """Begin to fetch keys."""
        self._supervisor = supervisor
        for keys in self._keys.values():
            keys.start(supervisor)

    async def stop(self) -> None:
        """Fetch no more keys."""
        self._supervisor = None
        for keys in self._keys.values():
            await keys.stop()

    def _renew_keys(self) -> None:
        """Follow the issuers; an issuer with an unchanged source of keys keeps its keys."""
        before = {(keys.issuer.names, keys.issuer.keys): keys for keys in self._keys.values()}
        self._keys = {}
        for issuer in self.policy.issuers:
            keys = before.pop((issuer.names, issuer.keys), None)
            if keys is None:
                keys = IssuerKeys(issuer, clock=self._clock)
                if self._supervisor is not None:
                    keys.start(self._supervisor)
            keys.issuer = issuer
            self._keys[str(issuer)] = keys
        for keys in before.values():
            keys.cancel()

    def keys_of(self, issuer: Issuer) -> IssuerKeys:
        """Return the keys of one of the policy's issuers."""
        return self._keys[str(issuer)]

    def _keys_of(self, issuer: Issuer) -> KeySet | None:
        return self._keys[str(issuer)].current

    @property
    def issuer_keys(self) -> Sequence[IssuerKeys]:
        """The keys of each issuer."""
        return list(self._keys.values())

    @property
    def reasons(self) -> list[str]:
        """A sentence for each file that cannot be used; its last good content holds."""
        faults = [self.file_fault] if self.file_fault else []
        return faults + [keys.sentence for keys in self._keys.values() if keys.is_file_faulty]

    @property
    def warnings(self) -> list[str]:
        """A sentence for each issuer whose keys could not be fetched."""
        return [
            keys.sentence
            for keys in self._keys.values()
            if keys.renewal.error and not keys.is_file_faulty
        ]
