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
from typing import TYPE_CHECKING
from urllib.parse import unquote

from bridge.model.access_rules import AccessRuleSet, Segments, path_segments, reaches, rule_keys
from bridge.model.claims import (
    Claims,
    Grant,
    RefusedBearer,
    audience_path,
    expired,
    uri_path,
    wrong_audience,
)
from bridge.model.entity import AuthorizationRule
from bridge.model.errors import Unauthorized

if TYPE_CHECKING:
    from bridge.model.access_policy import AccessPolicy

HTTP_GRACE_S = 60
"""How long past its expiry a token is accepted over HTTP: Python's administration client renews
only when expiry + 60 s has come. Over AMQP there is no grace.
"""

_LENGTH_MAX = 8_192
"""Characters of a token: far above the need of a resource of 260 characters."""

_SCHEME = "SharedAccessSignature"
_EXPIRY = re.compile(r"[0-9]{1,15}")


class InvalidSignature(RefusedBearer):
    """A key that is not one of the rule's, or a rule that does not exist.

    The log is told which of them it is: who asks is not told what rules there are.
    """

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(f"InvalidSignature: {text}", cause)


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
    path = uri_path(_decoded(fields["sr"]))
    if path is None:
        raise _malformed("'sr' is not a URI with a host")
    return Token(
        resource=fields["sr"],
        signature=_decoded(fields["sig"]),
        expiry=fields["se"],
        rule_name=_decoded(fields["skn"]),
        scope=path_segments(path),
    )


class _SharedKeyProof:
    """What somebody who knows a rule's key has proved."""

    def check(self, claims: Claims, audience: str) -> None:
        """See `Proof.check`."""
        if not claims.covers(audience_path(audience)):
            raise wrong_audience()


@dataclass(frozen=True, slots=True)
class SignatureProof(_SharedKeyProof):
    """A token that one of the rules had signed when it was verified."""

    token: Token
    expires_s: float | None

    def grants(self, policy: AccessPolicy, scope: Segments) -> tuple[Grant, ...]:
        """Return the rights of the rules that the token is signed by; none of other rules."""
        return _signed_grants(self.token, policy.rules)


@dataclass(frozen=True, slots=True)
class KeyProof(_SharedKeyProof):
    """The name of a rule, and a key that was one of the rule's when it was verified."""

    rule_name: str
    key: bytes = field(repr=False)
    expires_s: float | None = None

    def grants(self, policy: AccessPolicy, scope: Segments) -> tuple[Grant, ...]:
        """Return the rights of the rules that have this name and key."""
        return _key_grants(self.rule_name, self.key, policy.rules)


def is_signature(text: str) -> bool:
    """Whether a token has the beginning of a shared access signature."""
    return text.lstrip().startswith(_SCHEME)


def verify_token(token: str, rules: AccessRuleSet, now_s: float, *, grace_s: float = 0) -> Claims:
    """Return the claims of a token that one of the rules has signed.

    Args:
        grace_s: how long past its expiry the token is accepted (`HTTP_GRACE_S` over HTTP).

    Raises:
        Unauthorized: in Azure's words: the token is malformed, its signature is not that of a rule
            of this name at its resource or at a parent, or it has expired.
    """
    parsed = parse(token)
    grants = _signed_grants(parsed, rules)
    if not grants:
        named = [scope for scope, _ in rules.named(parsed.rule_name)]
        is_in_reach = any(reaches(scope, parsed.scope) for scope in named)
        cause = _cause(parsed.rule_name, bool(named), is_in_reach)
        raise InvalidSignature("The token has an invalid signature.", cause)
    if now_s >= parsed.expires_s + grace_s:
        raise expired(parsed.expires_s)
    expires_s = parsed.expires_s + grace_s
    return Claims(grants=grants, expires_s=expires_s, proof=SignatureProof(parsed, expires_s))


def verify_key(rule_name: str, key: str, rules: AccessRuleSet) -> Claims:
    """Return the claims of a bearer with a rule's name and one of the rule's keys (SASL PLAIN).

    Raises:
        Unauthorized: no rule of this name has this key.
    """
    given = key.encode(errors="replace")
    grants = _key_grants(rule_name, given, rules)
    if not grants:
        is_there = any(True for _ in rules.named(rule_name))
        cause = _cause(rule_name, is_there, is_there)
        raise InvalidSignature("The rule name or its key is not valid.", cause)
    return Claims(grants=grants, proof=KeyProof(rule_name, given))


def sign(resource: str, key: str, expires_s: int) -> str:
    """Return the signature (base64) over an already url-encoded resource and an expiry."""
    return _signature(f"{resource}\n{expires_s}".encode(), key.encode()).decode()


def _signed_grants(token: Token, rules: AccessRuleSet) -> tuple[Grant, ...]:
    """Return the rights of the rules that have signed a token and reach its resource."""
    signed = f"{token.resource}\n{token.expiry}".encode()
    given = token.signature.encode()
    return tuple(
        Grant(scope, token.scope, rule.rights)
        for scope, rule in rules.named(token.rule_name)
        if reaches(scope, token.scope) and _is_signed_by(rule, signed, given)
    )


def _key_grants(rule_name: str, key: bytes, rules: AccessRuleSet) -> tuple[Grant, ...]:
    """Return the rights of the rules with a name and a key."""
    return tuple(
        Grant(scope, (), rule.rights)
        for scope, rule in rules.named(rule_name)
        if any(hmac.compare_digest(known, key) for known in rule_keys(rule))
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
