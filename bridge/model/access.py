"""Shared access signatures: rights from a token, or from a rule's name and key.

A token is text: `SharedAccessSignature sr=<url-encoded URI>&sig=<url-encoded base64>&se=<epoch
seconds>&skn=<rule>`, its fields in any order. The signature is HMAC-SHA256 over the `sr` text *as
received* (encodings differ by language), a line feed and `se`, with the key's UTF-8 bytes. Source:
Service Bus documentation on shared access signatures, and the SDKs. The order of the checks is
parse, rule, signature, expiry; the resulting claims are asked for rights at each operation. No repr
and no error shows a key or a signature.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

from bridge.model.access_rules import RuleSet, Segments, path_segments, reaches, rule_keys
from bridge.model.entity import AuthorizationRule, Right
from bridge.model.errors import ServiceBusError, Unauthorized
from bridge.model.name import EntityPath

HTTP_GRACE_S = 60
"""How long past its expiry a token is accepted over HTTP: Python's administration client renews
only when expiry + 60 s has come. Over AMQP there is no grace.
"""

_LENGTH_MAX = 8_192
"""Characters of a token: far above the need of a resource of 260 characters."""

_SCHEME = "SharedAccessSignature"
_URI = re.compile(
    r"(?:[a-z][a-z0-9+.\-]*://[^/?#]+|localhost|[^/?#]+[.:][^/?#]*)(?P<path>(?:/[^?#]*)?)(?:[?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
"""Scheme, host and path; without a scheme the first part is the host when it looks like one, as in
the documentation's `sr=<namespace>.servicebus.windows.net`."""

_EXPIRY = re.compile(r"[0-9]{1,15}")


class InvalidSignature(Unauthorized):
    """A key that is not one of the rule's, or a rule that does not exist.

    Attributes:
        cause: which of them it is, for the bridge's own log: who asks is not told what rules there
            are.
    """

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(f"InvalidSignature: {text}")
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A parsed token, not yet verified.

    Attributes:
        resource: the `sr` text as received.
        signature: base64 text, url-decoded.
        expiry: the `se` text as received.
        rule_name: the rule that, by the token, signed it.
        scope: the path in `resource`; its host and scheme are ignored.
    """

    resource: str
    signature: str = field(repr=False)
    expiry: str
    rule_name: str
    scope: Segments

    @property
    def expires_s(self) -> int:
        """The end of the token, in seconds since 1970 UTC."""
        return int(self.expiry)


def parse(token: str) -> Token:
    """Parse a token.

    Raises:
        Unauthorized: the text has not the form of a shared access signature.
    """
    if not token.isascii():
        raise _malformed("it has characters that are not url-encoded")
    if len(token) > _LENGTH_MAX:
        raise _malformed(f"it is longer than {_LENGTH_MAX} characters")
    scheme, _, rest = token.strip().partition(" ")
    if scheme != _SCHEME:
        raise _malformed("it does not begin with 'SharedAccessSignature '")
    fields: dict[str, str] = {}
    for part in rest.strip().split("&"):
        name, equals, value = part.partition("=")
        if not equals or name in fields:
            raise _malformed("it is not a list of different 'name=value' joined by '&'")
        fields[name] = value
    for name in ("sr", "sig", "se", "skn"):
        if not fields.get(name):
            raise _malformed(f"'{name}' is missing")
    if not _EXPIRY.fullmatch(fields["se"]):
        raise _malformed("'se' is not a number of seconds")
    uri = _URI.fullmatch(_decoded(fields["sr"]).strip())
    if uri is None:
        raise _malformed("'sr' is not a URI with a host")
    return Token(
        resource=fields["sr"],
        signature=_decoded(fields["sig"]),
        expiry=fields["se"],
        rule_name=_decoded(fields["skn"]),
        scope=path_segments(uri["path"]),
    )


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights over the part of the namespace that both the rule and the token's resource cover."""

    rule_scope: Segments
    token_scope: Segments
    rights: frozenset[Right]

    def covers(self, path: Segments) -> bool:
        """Whether the path lies at or below both scopes."""
        return path[: len(self.token_scope)] == self.token_scope and reaches(self.rule_scope, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The rights of the bearer of a verified token, or of a verified name and key.

    Attributes:
        rule_name: the rule that gives the rights.
        expires_s: when they end (seconds since 1970 UTC); `None`: with the connection.
    """

    rule_name: str
    grants: tuple[Grant, ...]
    expires_s: float | None = None

    def allows(self, right: Right, path: EntityPath | str) -> bool:
        """Whether an operation that needs `right` is allowed at the path."""
        segments = path_segments(path)
        return any(right in grant.rights and grant.covers(segments) for grant in self.grants)

    def covers(self, path: EntityPath | str) -> bool:
        """Whether any right is given at the path (the audience of a put-token)."""
        segments = path_segments(path)
        return any(grant.covers(segments) for grant in self.grants)

    def check_audience(self, audience: str) -> None:
        """Refuse a token that is put for another resource than its own.

        Raises:
            Unauthorized: the token gives no right at `audience` (a URI, or a path).
        """
        uri = _URI.fullmatch(audience.strip())
        if not self.covers(uri["path"] if uri else audience):
            raise wrong_audience()


def verify_token(token: str, rules: RuleSet, now_s: float, *, grace_s: float = 0) -> Claims:
    """Return the claims of a token that one of the rules has signed.

    Args:
        grace_s: how long past its expiry the token is accepted (`HTTP_GRACE_S` over HTTP).

    Raises:
        Unauthorized: in Azure's words: the token is malformed, its signature is not that of a rule
            of this name at its resource or at a parent, or it has expired.
    """
    parsed = parse(token)
    signed = f"{parsed.resource}\n{parsed.expiry}".encode()
    given = parsed.signature.encode()
    named = list(rules.named(parsed.rule_name))
    reaching = [(scope, rule) for scope, rule in named if reaches(scope, parsed.scope)]
    grants = [
        Grant(scope, parsed.scope, rule.rights)
        for scope, rule in reaching
        if _is_signed_by(rule, signed, given)
    ]
    if not grants:
        cause = _cause(parsed.rule_name, bool(named), bool(reaching))
        raise InvalidSignature("The token has an invalid signature.", cause)
    if now_s >= parsed.expires_s + grace_s:
        raise Unauthorized(
            f"ExpiredToken: The token is expired. Expiration time: '{_utc_text(parsed.expires_s)}'"
        )
    expires_s = parsed.expires_s + grace_s
    return Claims(rule_name=parsed.rule_name, grants=tuple(grants), expires_s=expires_s)


def verify_key(rule_name: str, key: str, rules: RuleSet) -> Claims:
    """Return the claims of a bearer with a rule's name and one of the rule's keys (SASL PLAIN).

    Raises:
        Unauthorized: no rule of this name has this key.
    """
    given = key.encode(errors="replace")
    named = list(rules.named(rule_name))
    grants = [
        Grant(scope, (), rule.rights)
        for scope, rule in named
        if any(hmac.compare_digest(known, given) for known in rule_keys(rule))
    ]
    if not grants:
        cause = _cause(rule_name, bool(named), bool(named))
        raise InvalidSignature("The rule name or its key is not valid.", cause)
    return Claims(rule_name=rule_name, grants=tuple(grants))


def cause_of(error: ServiceBusError) -> str:
    """Return what the bridge's log says of a refused token or key; it holds no key."""
    text = str(error)
    return f"{text} ({error.cause})" if isinstance(error, InvalidSignature) else text


def sign(resource: str, key: str, expires_s: int) -> str:
    """Return the signature (base64) over an already url-encoded resource and an expiry."""
    return _signature(f"{resource}\n{expires_s}".encode(), key.encode()).decode()


def missing_right(right: Right, resource: str) -> Unauthorized:
    """Return the error for an operation without the right; `resource` is `sb://host/q`."""
    return Unauthorized(
        f"Unauthorized access. '{right.value}' claim(s) are required to perform this operation. "
        f"Resource: '{resource}'."
    )


def wrong_audience() -> Unauthorized:
    """Return the error for a token that is put or used for another resource."""
    return Unauthorized(
        "InvalidAudience: The authorization header contains a token with a wrong audience."
    )


def _cause(rule_name: str, is_there: bool, is_in_reach: bool) -> str:
    """Return in words why no rule of this name has signed."""
    if not is_there:
        return f"no rule has the name {rule_name!r}"
    if not is_in_reach:
        return f"the rule {rule_name!r} is another entity's"
    return f"the key is none of the rule {rule_name!r}"


def _is_signed_by(rule: AuthorizationRule, signed: bytes, given: bytes) -> bool:
    return any(hmac.compare_digest(_signature(signed, key), given) for key in rule_keys(rule))


def _signature(signed: bytes, key: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256))


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _malformed("it is not url-encoded UTF-8") from None


def _malformed(why: str) -> Unauthorized:
    return Unauthorized(f"MalformedToken: The token is not a shared access signature: {why}.")


def _utc_text(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"
