"""The administration API's answers to errors: status, sub-code and text.

Sub-codes: Azure's page on exceptions of its resource manager. A status after which the SDKs try
again (5xx but for 501) is given only where another try can succeed.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from http import HTTPStatus

from bridge.model import errors
from bridge.model.errors import ServiceBusError
from bridge.wire.atom.documents import error_text

CONTENT_TYPE = "application/xml; charset=utf-8"

_SUB_CODES: dict[type[ServiceBusError], int] = {
    errors.EntityConflict: 40901,
    errors.ServerBusy: 50004,
}
"""Where it is not the status with two zeros behind it."""

_TOKEN_CODES: dict[str, int] = {
    "InvalidSignature": 40103,
    "InvalidAudience": 40104,
    "MalformedToken": 40105,
    "ExpiredToken": 40106,
}


def refusal(
    error: ServiceBusError, host: str, path: str, known: int | None = None
) -> tuple[int, str]:
    """Return the status and the document of an error.

    Args:
        known: the status, where it is not the error's own.
    """
    if isinstance(error, errors.Unauthorized):
        code = _TOKEN_CODES.get(str(error).partition(":")[0])
        return 401, _document(401, f"{code}: {error}" if code else str(error), host, path)
    status = known or (504 if isinstance(error, errors.OperationTimeout) else error.status)
    code = _SUB_CODES.get(type(error), 100 * status)
    detail = str(error)
    if not detail.startswith(f"SubCode={code}."):
        detail = f"SubCode={code}. {HTTPStatus(status).phrase}. {detail}"
    return status, _document(status, detail, host, path)


def _document(status: int, detail: str, host: str, path: str) -> str:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    closed = detail if detail.endswith(".") else f"{detail}."
    return error_text(
        status,
        f"{closed} TrackingId:{uuid.uuid4()}, SystemTracker:{host}:{path}, Timestamp:{at}",
    )
