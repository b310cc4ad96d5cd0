"""An issuer's public keys, from a JWKS (RFC 7517)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWKSet
from jwt.exceptions import PyJWTError

from bridge.model.errors import ArgumentError

DOCUMENT_BYTES_MAX = 1_048_576
KEYS_MAX = 100
RSA_BITS_MIN = 2_048
RSA_BITS_MAX = 16_384

_PUBLIC = ("kty", "n", "e", "crv", "x", "y", "kid", "alg")
"""The members that are read; a private key in a JWKS is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebKey:
    """A public key.

    Attributes:
        kid: its id, if it has one.
        algorithms: the algorithms that it verifies.
        key: the key itself, of the package cryptography.
    """

    kid: str | None
    algorithms: frozenset[str]
    key: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """An issuer's keys; never empty."""

    keys: tuple[WebKey, ...]

    def of(self, kid: str | None) -> list[WebKey]:
        """Return the keys with an id; without an id the only key, if there is one alone."""
        if kid is None:
            return list(self.keys) if len(self.keys) == 1 else []
        return [key for key in self.keys if key.kid == kid]


def read_keys(document: bytes) -> KeySet:
    """Return the usable keys of a JWKS.

    Keys for encryption, shared secrets and RSA keys of fewer than 2,048 bits are left out.

    Raises:
        ArgumentError: it is no JWKS, is too large, or has no usable key.
    """
    listed = read_document(document).get("keys")
    if not isinstance(listed, list):
        raise ArgumentError("it has no list 'keys'")
    if len(listed) > KEYS_MAX:
        raise ArgumentError(f"it has {len(listed)} keys, and {KEYS_MAX} are taken")
    keys = tuple(key for each in listed if (key := _usable(each)) is not None)
    if not keys:
        raise ArgumentError("it has no key that can be used")
    return KeySet(keys)


def read_document(document: bytes) -> dict[str, Any]:
    """Return the object of a JSON document.

    Raises:
        ArgumentError: it is too large, or no object.
    """
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ArgumentError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        raise ArgumentError("it is not JSON") from None
    if not isinstance(value, dict):
        raise ArgumentError("it is no JSON object")
    return value


def _usable(member: object) -> WebKey | None:
    """Return the key of a member of a JWKS; `None` if it is no key for signatures, or too weak."""
    if not isinstance(member, dict) or not _is_for_signatures(member):
        return None
    public = {name: member[name] for name in _PUBLIC if name in member}
    try:
        (found,) = PyJWKSet.from_dict({"keys": [public]}).keys
    except PyJWTError:
        return None
    algorithms = _algorithms(found.key)
    if "alg" in public:
        algorithms &= {public["alg"]}
    if not algorithms:
        return None
    return WebKey(kid=public.get("kid"), algorithms=algorithms, key=found.key)


def _is_for_signatures(member: dict[str, Any]) -> bool:
    operations = member.get("key_ops")
    return (
        member.get("kty") in ("RSA", "EC")
        and member.get("use", "sig") == "sig"
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
        and isinstance(member.get("kid", ""), str)
        and isinstance(member.get("alg", ""), str)
    )


def _algorithms(key: object) -> frozenset[str]:
    if isinstance(key, RSAPublicKey) and RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        return frozenset(("RS256", "PS256"))
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return frozenset(("ES256",))
    return frozenset()
