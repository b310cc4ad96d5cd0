"""Who may do what over HTTP: the token of a request, against the shared access rules."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.model.access import HTTP_GRACE_S, Claims, missing_right, verify_token
from bridge.model.access_rules import RuleSet
from bridge.model.entity import Right
from bridge.model.errors import Unauthorized

AUTHORIZATION = "Authorization"
_SUPPLEMENTARY = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""Headers with a token for what is forwarded to."""

_MISSING = {
    "GET": "Manage,EntityRead claims required for this operation.",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite.",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete.",
}
"""What Azure says of a right that is missing (its own tests of the Go module look for it)."""


class Access:
    """The rights of one request.

    Args:
        host: what the client asked, for error texts.

    Raises:
        Unauthorized: it has no token, or one that is not valid.
    """

    def __init__(self, headers: Mapping[str, str], rules: RuleSet, host: str, now_s: float) -> None:
        self._headers = headers
        self._rules = rules
        self._host = host
        self._now_s = now_s
        self._claims = self._verified(AUTHORIZATION)

    def check(self, method: str, path: str, *rights: Right) -> None:
        """Refuse what none of these rights is given for.

        Raises:
            Unauthorized: the token gives none of them at the path; in Azure's words for the method.
        """
        if not any(self._claims.allows(right, path) for right in rights):
            raise Unauthorized(_MISSING[method])

    def check_target(self, header_of: str, path: str) -> None:
        """Refuse to forward to an entity that the client may not send to.

        Args:
            header_of: `ForwardTo` or `ForwardDeadLetteredMessagesTo`.

        Raises:
            Unauthorized: neither the request's token nor the one for the target gives that right.
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
        return verify_token(token, self._rules, self._now_s, grace_s=HTTP_GRACE_S)
