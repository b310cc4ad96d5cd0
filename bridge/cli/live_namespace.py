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

from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import SharedKey, SharedSignature, credential_in
from bridge.wire.atom.client import API_VERSION, NAMESPACE, list_path
from bridge.wire.atom.xml import Element, XmlError, parse

_TIMEOUT_S = 30.0
_TOKEN_S = 600
_FIRST_KEY = re.compile(r"\s*Endpoint\s*=", re.IGNORECASE)
_NEXT = re.compile(r"<link\b[^>]*\brel=.next.[^>]*>(?:</link>)?")
_DETAIL = re.compile(r"<Detail>(.*?)(?: TrackingId:.*)?</Detail>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LiveNamespace:
    """Address and login of a namespace; no key is in the repr.

    Attributes:
        url: scheme, host and port.
        page: the number of entries in one request.
    """

    url: str
    credential: SharedKey | SharedSignature = field(repr=False)
    page: int = 100

    def read(self) -> str:
        """Return the description of the namespace and of all its entities and rules.

        Raises:
            ValueError: the namespace refuses, does not answer, or answers with something else.
        """
        return "".join(self._documents())

    def _documents(self) -> Iterator[str]:
        yield self._get(NAMESPACE)
        yield from self._pages(list_path("Queue"))
        topics = list(self._pages(list_path("Topic")))
        yield from topics
        for topic in _titles(topics, list_path("Topic")):
            path = list_path("Subscription", topic)
            subscriptions = list(self._pages(path))
            yield from subscriptions
            for subscription in _titles(subscriptions, path):
                yield from self._pages(list_path("Rule", topic, subscription))

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
            f"{self.url}/{path}?{query}api-version={API_VERSION}",
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
        if isinstance(self.credential, SharedSignature):
            return self.credential.text
        return self.credential.sign(self.url, int(time.time()) + _TOKEN_S)


def is_connection_string(text: str) -> bool:
    """Whether a text is a connection string, and no definition of entities."""
    return _FIRST_KEY.match(text) is not None


def live_namespace(text: str) -> LiveNamespace:
    """Return the namespace of a connection string; it is read as the commands read it.

    Raises:
        ValueError: it is malformed, has no login, or is for one entity alone.
    """
    address, credential = RemoteAddress.of(text), credential_in(text)
    if credential is None:
        raise ValueError(
            "The connection string has neither SharedAccessKeyName and SharedAccessKey nor "
            "SharedAccessSignature."
        )
    if address.entity:
        raise ValueError(
            f"The connection string is for {address.entity!r} alone (EntityPath): a namespace is "
            "read whole."
        )
    return LiveNamespace(address.administration_url, credential)


def _entries(page: str, path: str) -> list[Element]:
    try:
        return [entry for feed in parse(page) for entry in feed.all("entry")]
    except XmlError as error:
        raise ValueError(f"The answer for {path} is no ATOM feed: {error}") from None


def _titles(pages: Iterable[str], path: str) -> list[str]:
    return [entry.text_of("title") for page in pages for entry in _entries(page, path)]
