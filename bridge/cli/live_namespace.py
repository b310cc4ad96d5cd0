"""The description of a live namespace, read from its administration API, as one text.

Azure's namespaces and a bridge's are read alike. The text is the feeds of all entities, one after
another, in the form that `policies.readers.atom` takes. The trusted CAs are OpenSSL's
(`SSL_CERT_FILE`).
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, urlsplit

from bridge.model.access import sign
from bridge.wire.atom.xml import Element, XmlError, parse

EMULATOR_PORT = 5300
"""The port of the emulator's API when the connection string names none."""

_API_VERSION = "2021-05"
_TIMEOUT_S = 30.0
_TOKEN_S = 600
_FIRST_KEY = re.compile(r"\s*Endpoint\s*=", re.IGNORECASE)
_NEXT = re.compile(r"<link\b[^>]*\brel=.next.[^>]*>(?:</link>)?")
_DETAIL = re.compile(r"<Detail>(.*?)(?: TrackingId:.*)?</Detail>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LiveNamespace:
    """Address and key of a namespace; the key is not in the repr.

    Attributes:
        url: scheme, host and port.
        page: the number of entries in one request.
    """

    url: str
    rule_name: str
    key: str = field(repr=False)
    page: int = 100

    def read(self) -> str:
        """Return the description of the namespace and of all its entities and rules.

        Raises:
            ValueError: the namespace refuses, does not answer, or answers with something else.
        """
        return "".join(self._documents())

    def _documents(self) -> Iterator[str]:
        yield self._get("$namespaceinfo")
        yield from self._pages("$Resources/Queues")
        topics = list(self._pages("$Resources/Topics"))
        yield from topics
        for topic in _titles(topics, "$Resources/Topics"):
            path = f"{quote(topic, safe='/')}/Subscriptions"
            subscriptions = list(self._pages(path))
            yield from subscriptions
            for subscription in _titles(subscriptions, path):
                yield from self._pages(f"{path}/{quote(subscription)}/Rules")

    def _pages(self, path: str) -> Iterator[str]:
        """Yield the pages of a list, each as if it were complete."""
        skip = 0
        while True:
            page = self._get(path, f"$skip={skip}&$top={self.page}&")
            count = len(_entries(page, path))
            yield _NEXT.sub("", page)
            if count < self.page:
                return
            skip += count

    def _get(self, path: str, query: str = "") -> str:
        request = urllib.request.Request(
            f"{self.url}/{path}?{query}api-version={_API_VERSION}",
            headers={"Authorization": self._token()},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return str(answer.read().decode("utf-8-sig"))
        except urllib.error.HTTPError as error:
            body = error.read().decode(errors="replace")
            found = _DETAIL.search(body)
            said = found[1] if found else error.reason
            raise ValueError(f"{self.url} answers {error.code} for {path}: {said}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ValueError(f"{self.url} cannot be read: {reason}") from None

    def _token(self) -> str:
        resource = quote_plus(self.url)
        until_s = int(time.time()) + _TOKEN_S
        signature = quote_plus(sign(resource, self.key, until_s))
        return (
            f"SharedAccessSignature sr={resource}&sig={signature}&se={until_s}"
            f"&skn={quote_plus(self.rule_name)}"
        )


def is_connection_string(text: str) -> bool:
    """Whether a text is a connection string, and no definition of entities."""
    return _FIRST_KEY.match(text) is not None


def live_namespace(connection_string: str) -> LiveNamespace:
    """Return the namespace of a connection string.

    With `UseDevelopmentEmulator=true` the API is called without TLS.

    Raises:
        ValueError: a required part is missing.
    """
    pairs = (part.strip().partition("=") for part in connection_string.split(";"))
    values = {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}
    for needed in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey"):
        if not values.get(needed.lower()):
            raise ValueError(f"The connection string has no {needed}.")
    place = urlsplit(values["endpoint"])
    if not place.hostname:
        raise ValueError("The connection string's Endpoint has no host.")
    is_emulator = values.get("usedevelopmentemulator", "").lower() == "true"
    host = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
    port = place.port or (EMULATOR_PORT if is_emulator else None)
    return LiveNamespace(
        url=f"{'http' if is_emulator else 'https'}://{host}" + (f":{port}" if port else ""),
        rule_name=values["sharedaccesskeyname"],
        key=values["sharedaccesskey"],
    )


def _entries(page: str, path: str) -> list[Element]:
    try:
        return [entry for feed in parse(page) for entry in feed.all("entry")]
    except XmlError as error:
        raise ValueError(f"The answer for {path} is no ATOM feed: {error}") from None


def _titles(pages: Iterable[str], path: str) -> list[str]:
    return [entry.text_of("title") for page in pages for entry in _entries(page, path)]
