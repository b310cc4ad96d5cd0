"""A request to the administration API, and its answers: entries, feeds and refusals in Atom."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from bridge.admin.refusals import CONTENT_TYPE, refusal
from bridge.admin.request_rights import SUB_CODE, RequestRights
from bridge.admin.target import AtomTarget
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.duration import instant_text
from bridge.model.errors import (
    ArgumentError,
    InternalError,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
    Unauthorized,
)
from bridge.wire.atom.descriptions import NEVER, VERSION, rule_node
from bridge.wire.atom.documents import AtomEntry, entry_text, feed_text, nothing_text
from bridge.wire.atom.writing import XmlElement

PAGE_MAX = 1_000
"""Entries of one page, whatever is asked for; without a wish there are 100."""

_PAGE = 100

_ENTRY_TYPE = "application/atom+xml; type=entry; charset=utf-8"
_FEED_TYPE = "application/atom+xml; type=feed; charset=utf-8"

_log = logging.getLogger("busbridge.administration")

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer to a request; an answer without a text has no body.

    Attributes:
        is_old: some of its counts are no longer true, perhaps.
        reason: the words behind the status; "" for the usual ones.
    """

    status: int = 200
    text: str = ""
    content_type: str = ""
    etag: str = ""
    is_old: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request.

    Attributes:
        access: the client's rights; `None` when the client may do everything.
        base: scheme and host of the request, for URLs in the answer.
        query: the parameters, by name in lower case.
        etag: the If-Match header; "" when it is missing.
    """

    target: AtomTarget
    access: RequestRights | None
    base: str
    host: str
    query: Mapping[str, str]
    body: bytes
    etag: str

    @property
    def version(self) -> str:
        """The version of the API that the client asks with, such as `2021-05`."""
        return self.query.get("api-version") or VERSION

    def url(self, path: str, **more: object) -> str:
        """Return the URL of a path, with the API version of the request."""
        query = {f"${name}": value for name, value in more.items()}
        text = urlencode({**query, "api-version": self.version}, safe="$")
        return f"{self.base}/{path}?{text}"


def page_of(asked: Asked, things: Sequence[Thing]) -> tuple[Sequence[Thing], str]:
    """Return the requested page of a list, and the URL of the next page ("" for none).

    Raises:
        ArgumentError: `$skip` or `$top` is no whole number.
    """
    skip = _count(asked, "$skip", 0)
    top = min(_count(asked, "$top", _PAGE), PAGE_MAX)
    page = things[skip : skip + top]
    has_more = skip + top < len(things) and bool(page)
    return page, asked.url(asked.target.path, skip=skip + top, top=top) if has_more else ""


def _count(asked: Asked, name: str, default: int) -> int:
    text = asked.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ArgumentError(f"{name} is {text[:20]!r}; it is a whole number.")
    return int(text)


def now() -> str:
    """Return the current time as text, in the form of descriptions."""
    return instant_text(now_ms())


def etag_of(updated_at: str) -> str:
    """Return the ETag of an entity from the time of its last change."""
    digits = "".join(each for each in updated_at if each.isdigit())
    return f'"{digits or 0}"'


def entry_of(
    asked: Asked, path: str, title: str, node: XmlElement, entity: model.Entity | None = None
) -> AtomEntry:
    """Return the entry of a description, with the times of `entity`, or with unknown times."""
    return AtomEntry(
        url=asked.url(path),
        title=title,
        published=(entity and entity.created_at) or NEVER,
        updated=(entity and entity.updated_at) or NEVER,
        description=node,
    )


def rule_entry(asked: Asked, subscription: model.Subscription, rule: model.Rule) -> AtomEntry:
    """Return the entry of a rule."""
    node = rule_node(rule, rule.created_at or subscription.created_at)
    path = f"{subscription.path}/Rules/{rule.name}"
    return entry_of(asked, path, rule.name, node, subscription)


def entry_answer(
    asked: Asked, entry: AtomEntry, *, status: int = 200, is_old: bool = False
) -> HttpAnswer:
    """Return an answer with one entry."""
    text, etag = entry_text(entry, asked.host), etag_of(entry.updated)
    return HttpAnswer(status=status, text=text, content_type=_ENTRY_TYPE, etag=etag, is_old=is_old)


def feed_answer(
    asked: Asked, entries: Sequence[AtomEntry], next_url: str, *, is_old: bool = False
) -> HttpAnswer:
    """Return an answer with a page of a list."""
    title = asked.target.path.rpartition("/")[2]
    url = asked.url(asked.target.path)
    text = feed_text(title, url, now(), entries, asked.host, next_url)
    return HttpAnswer(text=text, content_type=_FEED_TYPE, is_old=is_old)


def nothing_answer(asked: Asked) -> HttpAnswer:
    """Return an empty feed, which the clients take for 'not found'."""
    text = nothing_text(asked.url(asked.target.path), now())
    return HttpAnswer(text=text, content_type=_FEED_TYPE)


async def answered(work: Awaitable[HttpAnswer], method: str, host: str, path: str) -> HttpAnswer:
    """Return the answer of a request; a refusal or a failure becomes an error in Azure's form.

    Where RabbitMQ fails in the middle of a change, the change may be made, or be made in part: that
    is no refusal.

    Args:
        work: carries the request out.
        method: the request's method.
        host, path: the request's host and path, for the text of an error.
    """
    try:
        return await work
    except ServiceBusError as error:
        return _refused(error, host, path)
    except BrokerError as error:
        _log.warning("administration.failed path=%r error=%s", path, error)
        if method == "GET":
            return _refused(ServerBusy(f"RabbitMQ cannot do this now: {error}."), host, path)
        return _refused(OperationTimeout(texts.unknown(error)), host, path)
    except Exception:
        _log.exception("administration.failed path=%r", path)
        return _refused(InternalError("The bridge has failed; its log says how."), host, path)


def _refused(error: ServiceBusError, host: str, path: str) -> HttpAnswer:
    status, text = refusal(error, host, path.strip("/"))
    is_said = isinstance(error, Unauthorized) and str(error).startswith(SUB_CODE)
    reason = str(error).partition(" on endpoint ")[0] if is_said else ""
    return HttpAnswer(status=status, text=text, content_type=CONTENT_TYPE, reason=reason)
