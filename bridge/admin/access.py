"""Rights of HTTP requests: a request's token, checked against the shared access rules."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.model.access import HTTP_GRACE_S, Claims, missing_right, verify_token
from bridge.model.access_rules import RuleSet
from bridge.model.entity import Right
from bridge.model.errors import Unauthorized
from bridge.model.name import EntityPath

AUTHORIZATION = "Authorization"
_SUPPLEMENTARY = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""Headers with a token for what is forwarded to."""

SUB_CODE = "SubCode=40100"
"""The beginning of what Azure says of a right that is missing at a subscription."""

_MISSING = {
    "GET": "Manage,EntityRead claims required for this operation.",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite.",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete.",
}
"""What Azure says of a right that is missing (its own tests of the Go module look for it)."""


class Access:
    """The rights of one request.

    Args:
        host: the host in the request, for error texts.
        grace_s: how long past its expiry a token is accepted.

    Raises:
        Unauthorized: the request has no token, or the token is not valid.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        rules: RuleSet,
        host: str,
        now_s: float,
        *,
        grace_s: float = HTTP_GRACE_S,
    ) -> None:
        self._headers = headers
        self._rules = rules
        self._host = host
        self._now_s = now_s
        self._grace_s = grace_s
        self._claims = self._verified(AUTHORIZATION)

    def check(self, method: str, path: str, operation: str, *rights: Right) -> None:
        """Raise unless the token gives one of the rights at the path.

        Args:
            operation: Azure's name of what is done with a subscription; "" for anything else.

        Raises:
            Unauthorized: the token gives none of them; the text is Azure's, for the operation or
                the method.
        """
        if any(self._claims.allows(right, path) for right in rights):
            return
        if operation:
            raise Unauthorized(
                f"{SUB_CODE}: Unauthorized : Unauthorized access for '{operation}' operation on "
                f"endpoint 'sb://{self._host}/{path}'."
            )
        raise Unauthorized(_MISSING[method])

    def covers(self, path: str) -> bool:
        """Return whether the token gives any right at the path."""
        return self._claims.covers(path)

    def require(self, right: Right, path: EntityPath) -> None:
        """Raise unless the token gives a right to messages of an entity.

        Raises:
            Unauthorized: it does not.
        """
        if not self._claims.allows(right, path):
            raise missing_right(right, f"sb://{self._host}/{path}")

    def check_target(self, header_of: str, path: str) -> None:
        """Raise unless the client may send to the entity that it wants to forward to.

        Args:
            header_of: `ForwardTo` or `ForwardDeadLetteredMessagesTo`.
            path: the path of the target of forwarding.

        Raises:
            Unauthorized: neither the request's token nor the token for the target gives the right.
        """
        if self._claims.allows(Right.SEND, path):
            return
        header = _SUPPLEMENTARY[header_of]
        if header not in self._headers or not self._verified(header).allows(Right.SEND, path):
            raise missing_right(Right.SEND, f"sb://{self._host}/{path}")

    def _verified(self, header: str) -> Claims:
        token = self._headers.get(header, "")
        if not token:
            raise Unauthorized(f"MalformedToken: The header {header} is missing.")
        if token.partition(" ")[0].lower() == "bearer":
            raise Unauthorized(
                "MalformedToken: Tokens of Microsoft Entra are not taken here; use a shared "
                "access key."
            )
        return verify_token(token, self._rules, self._now_s, grace_s=self._grace_s)
