""".NET's administration client, after its source: what it writes, and what its parsers take.

What it writes is played word for word (its order of elements, prefixes, audience and query). What
it reads is read as its parsers do: an element that they cannot parse is an error here, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tests.fixtures.administration import KEY

ATOM = "{http://www.w3.org/2005/Atom}"
SERVICE_BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
VERSION = "api-version=2024-05"

DEFAULT_RULE = """
<DefaultRuleDescription>
  <Filter p5:type="TrueFilter" xmlns:p5="http://www.w3.org/2001/XMLSchema-instance">
    <SqlExpression>1=1</SqlExpression><Parameters />
  </Filter>
  <Name>$Default</Name>
</DefaultRuleDescription>"""


def described(kind: str, inner: str) -> str:
    """The document of an entity or a rule, indented as .NET writes it."""
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom">\n  <content type="application/xml">\n'
        f'    <{kind}Description xmlns="{SERVICE_BUS[1:-1]}">\n{inner}\n'
        f"    </{kind}Description>\n  </content>\n</entry>"
    )


def elements(**values: str) -> str:
    """Elements with text, in this order."""
    return "\n".join(f"<{name}>{text}</{name}>" for name, text in values.items())


def sql(expression: str, action: str, name: str, kind: str = "int") -> str:
    """What describes a rule with a SQL filter and an action, each with a parameter."""
    parameters = (
        "<Parameters><KeyValueOfstringanyType><Key>@least</Key>"
        f'<Value p7:type="l28:{kind}" xmlns:l28="http://www.w3.org/2001/XMLSchema" '
        'xmlns:p7="http://www.w3.org/2001/XMLSchema-instance">3</Value>'
        "</KeyValueOfstringanyType></Parameters>"
    )
    given = (("Filter", "SqlFilter", expression), ("Action", "SqlRuleAction", action))
    return "".join(
        f'<{tag} p5:type="{kind}" xmlns:p5="http://www.w3.org/2001/XMLSchema-instance">'
        f"<SqlExpression>{text}</SqlExpression>{parameters}</{tag}>"
        for tag, kind, text in given
    ) + elements(Name=name)


def correlation(properties: dict[str, tuple[str, str]], name: str) -> str:
    """What describes a rule with a correlation filter; key -> type and text."""
    pairs = "".join(
        f"<KeyValueOfstringanyType><Key>{key}</Key>"
        f'<Value p7:type="l28:{kind}" xmlns:l28="http://www.w3.org/2001/XMLSchema" '
        f'xmlns:p7="http://www.w3.org/2001/XMLSchema-instance">{text}</Value>'
        "</KeyValueOfstringanyType>"
        for key, (kind, text) in properties.items()
    )
    return (
        '<Filter p5:type="CorrelationFilter" '
        'xmlns:p5="http://www.w3.org/2001/XMLSchema-instance">'
        f"<Label>order</Label><Properties>{pairs}</Properties></Filter>"
    ) + elements(Name=name)


class Refused(Exception):
    """An answer of 400 or more; its sub-code as .NET finds it."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(body)
        self.status = status
        detail = ElementTree.fromstring(body).findtext("Detail")
        assert detail is not None, body
        found = re.search(r"SubCode=(\d+)\.", detail)
        self.code = found[1] if found else ""


class Dotnet:
    """Sends what .NET's client does with the emulator flag set: plain HTTP to the given port.

    Attributes:
        token: is for the namespace unless a path is given.
    """

    def __init__(self, port: int, rule: str = KEY[0], key: str = KEY[1], path: str = "") -> None:
        self._port = port
        audience = quote(f"https://localhost/{path}", safe="").replace("%3A", "%3a")
        audience = audience.replace("%2F", "%2f")
        until = int(time.time()) + 1800
        digest = hmac.digest(key.encode(), f"{audience}\n{until}".encode(), hashlib.sha256)
        signature = quote(base64.b64encode(digest), safe="")
        self.token = f"SharedAccessSignature sr={audience}&sig={signature}&se={until}&skn={rule}"

    def get(self, path: str, *, enrich: bool = False, page: str = "") -> str:
        """Read."""
        return self._send("GET", f"{path}?{VERSION}&enrich={enrich}{page}")

    def put(self, path: str, body: str, *, is_update: bool = False, forwards: bool = False) -> str:
        """Create or update."""
        headers = {"Content-Type": "application/atom+xml"}
        if is_update:
            headers["If-Match"] = "*"
        if forwards:
            headers["ServiceBusSupplementaryAuthorization"] = self.token
        return self._send("PUT", f"{path}?{VERSION}", body.encode(), **headers)

    def delete(self, path: str) -> str:
        """Delete."""
        return self._send("DELETE", f"{path}?{VERSION}")

    def _send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> str:
        request = urllib.request.Request(
            f"http://localhost:{self._port}/{path}",
            body,
            {"Authorization": self.token, **headers},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode()) from None


def whole(bits: int) -> Callable[[str], int]:
    """Parse a signed number of so many bits."""

    def read(text: str) -> int:
        assert re.fullmatch(r"-?[0-9]+", text)
        assert -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)
        return int(text)

    return read


def boolean(text: str) -> bool:
    """Parse true or false."""
    assert text in ("true", "false"), text
    return text == "true"


def duration(text: str) -> str:
    """Check that .NET's TimeSpan can hold it."""
    assert re.fullmatch(r"P(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{1,7})?S)?)?", text), text
    assert text not in ("P", "PT"), text
    return text


def moment(text: str) -> datetime:
    """Parse a time."""
    found = datetime.fromisoformat(text)
    assert found.tzinfo == UTC, text
    return found


PARSERS: dict[str, Callable[[str], Any]] = {
    "LockDuration": duration,
    "MaxSizeInMegabytes": whole(32),
    "RequiresDuplicateDetection": boolean,
    "RequiresSession": boolean,
    "DefaultMessageTimeToLive": duration,
    "DeadLetteringOnMessageExpiration": boolean,
    "DeadLetteringOnFilterEvaluationExceptions": boolean,
    "DuplicateDetectionHistoryTimeWindow": duration,
    "MaxDeliveryCount": whole(32),
    "EnableBatchedOperations": boolean,
    "FilteringMessagesBeforePublishing": boolean,
    "IsAnonymousAccessible": boolean,
    "SupportOrdering": boolean,
    "AutoDeleteOnIdle": duration,
    "EnablePartitioning": boolean,
    "EnableSubscriptionPartitioning": boolean,
    "EnableExpress": boolean,
    "MaxMessageSizeInKilobytes": whole(64),
    "Status": str,
    "ForwardTo": str,
    "ForwardDeadLetteredMessagesTo": str,
    "UserMetadata": str,
    "AccessedAt": moment,
    "CreatedAt": moment,
    "UpdatedAt": moment,
    "MessageCount": whole(64),
    "SizeInBytes": whole(64),
    "SubscriptionCount": whole(32),
    "SqlFilterCount": whole(32),
    "CorrelationFilterCount": whole(32),
    "ActiveMessageCount": whole(64),
    "DeadLetterMessageCount": whole(64),
    "ScheduledMessageCount": whole(64),
    "TransferMessageCount": whole(64),
    "TransferDeadLetterMessageCount": whole(64),
    "CreatedTime": moment,
    "ModifiedTime": moment,
}


def entry_of(found: Element, kind: str) -> tuple[str, dict[str, Any], Element]:
    """An entry's title, its values and its description; .NET takes any other for 'not found'."""
    assert found.tag == f"{ATOM}entry"
    title = found.findtext(f"{ATOM}title")
    assert title is not None
    description = found.find(f"{ATOM}content/{SERVICE_BUS}{kind}")
    assert description is not None
    values: dict[str, Any] = {}
    for each in [*description, *description.findall(f"{SERVICE_BUS}CountDetails/*")]:
        name = each.tag.rpartition("}")[2]
        values[name] = PARSERS.get(name, str)(each.text or "")
    return title, values, description


def read(text: str, kind: str = "QueueDescription") -> tuple[str, dict[str, Any], Element]:
    """The entry that an answer is."""
    return entry_of(ElementTree.fromstring(text), kind)


def listed(text: str, kind: str) -> list[tuple[str, dict[str, Any], Element]]:
    """The entries of a page."""
    feed = ElementTree.fromstring(text)
    assert feed.tag == f"{ATOM}feed"
    return [entry_of(each, kind) for each in feed.findall(f"{ATOM}entry")]


def written(description: Element) -> str:
    """A description as an update sends it: what .NET does not know goes back, too."""
    content = ElementTree.Element(f"{ATOM}content", {"type": "application/xml"})
    content.append(description)
    entry = ElementTree.Element(f"{ATOM}entry")
    entry.append(content)
    return ElementTree.tostring(entry, encoding="unicode")


def value_of(pair: Element, text: str) -> tuple[str | None, str, str | None]:
    """Key, type and text of a value; the type's prefix must be the one declared for schemas."""
    value = pair.find(f"{SERVICE_BUS}Value")
    assert value is not None
    prefix, _, kind = value.attrib[TYPE].partition(":")
    assert f'xmlns:{prefix}="{SCHEMA}"' in text
    return pair.findtext(f"{SERVICE_BUS}Key"), kind, value.text
