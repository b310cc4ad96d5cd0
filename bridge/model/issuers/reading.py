"""The issuers in a rules file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from bridge.model.access_rules import Segments, path_segments, rights_of
from bridge.model.entity import Right
from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.model.issuers.issuer import (
    ALGORITHMS,
    ROLES,
    Issuer,
    KeySource,
    TokenGrant,
    discovery_of,
    entra,
)
from bridge.model.name import SHORT_NAME_LENGTH_MAX, check_entity_name

_FIELDS = frozenset(("entra", "issuer", "audience", "keys", "algorithms", "grants"))
_KEY_FIELDS = frozenset(("file", "url", "discovery", "ca", "bearer"))
_GRANT_FIELDS = frozenset(("claim", "value", "role", "rights", "scope"))

_TENANT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def issuers_of(listed: list[object]) -> tuple[Issuer, ...]:
    """Return the issuers in the `issuers` of a rules file.

    Raises:
        ArgumentError: names the issuer by its place in the list, and the field.
    """
    issuers: list[Issuer] = []
    for position, entry in enumerate(listed, 1):
        try:
            issuer = _issuer(entry)
            taken = {name for other in issuers for name in other.names}
            if again := sorted(taken.intersection(issuer.names)):
                raise ArgumentError(f"the issuer {again[0]!r} is there twice")
        except ServiceBusError as error:
            raise ArgumentError(
                f"The rules file, issuer {position}: {str(error).rstrip('.')}."
            ) from None
        issuers.append(issuer)
    return tuple(issuers)


def _issuer(entry: object) -> Issuer:
    fields = _object(entry, _FIELDS, "it")
    grants = _grants(fields.get("grants"))
    source = _key_source(fields["keys"]) if "keys" in fields else KeySource()
    if "entra" in fields:
        for other in ("issuer", "audience", "algorithms"):
            if other in fields:
                raise ArgumentError(f"'entra' has its own {other}: leave {other!r} out")
        tenant = _text(fields["entra"], "'entra'").lower()
        if not _TENANT.fullmatch(tenant):
            raise ArgumentError("'entra' must be the tenant's id, a GUID; a domain is none")
        made = entra(tenant, grants)
        return entra(tenant, grants, _with_default(source, made.keys.discovery))
    if "issuer" not in fields:
        raise ArgumentError("'issuer' or 'entra' must be given")
    name = _text(fields["issuer"], "'issuer'")
    audiences = tuple(dict.fromkeys(_texts(fields.get("audience"), "'audience'")))
    algorithms = _texts(fields.get("algorithms", list(ALGORITHMS)), "'algorithms'")
    if not set(algorithms) <= set(ALGORITHMS):
        raise ArgumentError(f"'algorithms' must be some of {', '.join(ALGORITHMS)}")
    return Issuer(
        names=(name,),
        audiences=audiences,
        keys=_with_default(source, discovery_of(name)),
        algorithms=tuple(each for each in ALGORITHMS if each in algorithms),
        grants=grants,
    )


def _with_default(source: KeySource, discovery: str) -> KeySource:
    """Return a source of keys with the issuer's own discovery, if nothing else is given."""
    if not str(source):
        source = KeySource(discovery=discovery, ca=source.ca, bearer=source.bearer)
    for address in (source.url, source.discovery):
        if address and not _is_https(address):
            raise ArgumentError(
                f"keys are fetched by https alone, and {address!r} is not; give 'keys' with "
                "'file', 'url' or 'discovery'"
            )
    return source


def _is_https(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme == "https" and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False


def _key_source(entry: object) -> KeySource:
    fields = _object(entry, _KEY_FIELDS, "'keys'")
    texts = {name: _text(value, f"'{name}' in 'keys'") for name, value in fields.items()}
    if len(fields.keys() & {"file", "url", "discovery"}) > 1:
        raise ArgumentError("'keys' has one of 'file', 'url' and 'discovery'")
    if "file" in fields and len(fields) > 1:
        raise ArgumentError("'keys' with 'file' has nothing beside it")
    if "bearer" in fields and "ca" not in fields:
        raise ArgumentError("'bearer' in 'keys' needs 'ca', so that no other host gets it")
    return KeySource(**texts)


def _grants(listed: object) -> tuple[TokenGrant, ...]:
    if not isinstance(listed, list) or not listed:
        raise ArgumentError("'grants' must be a list that is not empty")
    grants = []
    for position, entry in enumerate(listed, 1):
        try:
            grants.append(_grant(entry))
        except ServiceBusError as error:
            raise ArgumentError(f"grant {position}: {str(error).rstrip('.')}") from None
    return tuple(grants)


def _grant(entry: object) -> TokenGrant:
    fields = _object(entry, _GRANT_FIELDS, "it")
    if ("role" in fields) == ("rights" in fields):
        raise ArgumentError("it must have one of 'role' and 'rights'")
    rights = _role(fields["role"]) if "role" in fields else rights_of(fields["rights"])
    if Right.MANAGE in rights and len(rights) < len(Right):
        raise ArgumentError("Manage needs Send and Listen beside it")
    return TokenGrant(
        claim=tuple(_texts(fields.get("claim"), "'claim'")),
        values=frozenset(_texts(fields.get("value"), "'value'")),
        rights=rights,
        scope=_scope(fields.get("scope", "")),
    )


def _role(name: object) -> frozenset[Right]:
    role = ROLES.get(_text(name, "'role'"))
    if role is None:
        raise ArgumentError(f"'role' must be one of {', '.join(map(repr, ROLES))}")
    return role


def _scope(value: object) -> Segments:
    """Return the path of a queue, topic or subscription; empty for the namespace."""
    scope = value.strip("/") if isinstance(value, str) else ""
    if not isinstance(value, str) or (value and not scope and value != "/"):
        raise ArgumentError("'scope' must be a text")
    if not scope:
        return ()
    segments = path_segments(scope)
    topic, marker, subscription = scope.lower().rpartition("/subscriptions/")
    if marker:
        check_entity_name(topic)
        check_entity_name(subscription, length_max=SHORT_NAME_LENGTH_MAX)
    else:
        check_entity_name(scope)
    return segments


def _object(entry: object, known: frozenset[str], what: str) -> dict[str, object]:
    if not isinstance(entry, dict):
        raise ArgumentError(f"{what} is not an object")
    if unknown := sorted(set(entry) - known):
        raise ArgumentError(f"the field {unknown[0]!r} is not known; known: {sorted(known)}")
    return entry


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ArgumentError(f"{what} must be a text that is not empty")
    return value


def _texts(value: object, what: str) -> list[str]:
    """Return a text as a list of one, and a list of texts as it is."""
    listed: Iterable[object] = value if isinstance(value, list) else (value,)
    if value == []:
        raise ArgumentError(f"{what} must be a text, or a list of texts that is not empty")
    return [_text(each, what) for each in listed]
