"""Errors as the administration API answers them: status, sub-code and words.

Sub-codes: Azure's page on exceptions of its resource manager. A status that the SDKs try again (5xx
but for 501) is given only where that can help.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from bridge.model import errors
from bridge.model.errors import ServiceBusError
from bridge.wire.atom.documents import error_text

CONTENT_TYPE = "application/xml; charset=utf-8"

_STATUSES: tuple[tuple[type[ServiceBusError], int, int, str], ...] = (
    (errors.EntityNotFound, 404, 40400, "Not Found"),
    (errors.EntityAlreadyExists, 409, 40900, "Conflict"),
    (errors.EntityConflict, 409, 40901, "Conflict"),
    (errors.EntityChanged, 412, 41200, "Precondition Failed"),
    (errors.QuotaExceeded, 403, 40300, "Forbidden"),
    (errors.NotImplementedHere, 501, 50100, "Not Implemented"),
    (errors.ServerBusy, 503, 50004, "Service Unavailable"),
    (errors.OperationTimeout, 504, 50400, "Gateway Timeout"),
    (errors.ArgumentError, 400, 40000, "Bad Request"),
    (errors.ArgumentOutOfRange, 400, 40000, "Bad Request"),
    (errors.NotAllowed, 400, 40000, "Bad Request"),
)

_TOKEN_CODES: dict[str, int] = {
    "InvalidSignature": 40103,
    "InvalidAudience": 40104,
    "MalformedToken": 40105,
    "ExpiredToken": 40106,
}


def refusal(error: ServiceBusError, host: str, path: str) -> tuple[int, str]:
    """Return the status and the document of an error."""
    if isinstance(error, errors.Unauthorized):
        code = _TOKEN_CODES.get(str(error).partition(":")[0])
        return 401, _document(401, f"{code}: {error}" if code else str(error), host, path)
    for kind, status, code, words in _STATUSES:
        if isinstance(error, kind):
            detail = f"SubCode={code}. {words}. {error}"
            return status, _document(status, detail, host, path)
    return 500, _document(500, f"SubCode=50000. {error}", host, path)


def _document(status: int, detail: str, host: str, path: str) -> str:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    closed = detail if detail.endswith(".") else f"{detail}."
    return error_text(
        status,
        f"{closed} TrackingId:{uuid.uuid4()}, SystemTracker:{host}:{path}, Timestamp:{at}",
    )
