"""Connection strings of Azure Service Bus: `name=value` pairs with semicolons between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

_MALFORMED = (
    "The connection string is blank or malformed: give name=value pairs with semicolons between "
    "them, an Endpoint among them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionString:
    """The parts of a connection string; its repr shows no key and no signature.

    Attributes:
        authority: the Endpoint's host, with its port if it has one.
        entity_path: the entity that the string is for; `None` for any.
        is_emulator: the string says `UseDevelopmentEmulator=true`: plain TCP, as at Microsoft's
            emulator. The SDKs of Python and JavaScript take this spelling alone.
    """

    authority: str
    entity_path: str | None = None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    is_emulator: bool = False

    @property
    def host(self) -> str:
        """The Endpoint's host without its port; an IPv6 address has no brackets."""
        return urlsplit(f"//{self.authority}").hostname or self.authority

    @property
    def port(self) -> int | None:
        """The Endpoint's port; `None` if it names none."""
        return urlsplit(f"//{self.authority}").port


def is_connection_string(text: str) -> bool:
    """Return whether a text is meant as a connection string, not as the name of a host."""
    return "=" in text


def read(text: str) -> ConnectionString:
    """Return the parts of a connection string, which the SDK's parser would return.

    Raises:
        ValueError: the text is malformed, or has half a login or two; no error shows a key.
    """
    pairs = [pair.partition("=") for pair in text.strip().rstrip(";").split(";")]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError(_MALFORMED)
    found = {name: value for name, _, value in pairs}
    signatures = [value for name, value in found.items() if name.lower() == "sharedaccesssignature"]
    name, key = found.get("SharedAccessKeyName"), found.get("SharedAccessKey")
    if bool(name) != bool(key):
        raise ValueError("SharedAccessKeyName and SharedAccessKey go together.")
    if key and signatures:
        raise ValueError("Either SharedAccessKey or SharedAccessSignature is needed, not both.")
    return ConnectionString(
        authority=_authority(found.get("Endpoint")),
        entity_path=found.get("EntityPath"),
        key_name=name,
        key=key,
        signature=signatures[0] if signatures else None,
        is_emulator=found.get("UseDevelopmentEmulator") == "true",
    )


def _authority(endpoint: str | None) -> str:
    if not endpoint:
        raise ValueError(_MALFORMED)
    authority = urlsplit(endpoint).netloc.strip()
    if not authority:
        raise ValueError("The Endpoint of the connection string is no URL: sb://HOST/.")
    try:
        _ = urlsplit(f"//{authority}").port
    except ValueError:
        raise ValueError("The Endpoint's port is no number from 0 to 65535.") from None
    return authority
