"""A bridge's refusals of administration, under azure-core's names.

If azure-core is installed, these are subclasses of its errors too, so `except` clauses with its
names go on working.
"""

from __future__ import annotations

try:
    from azure.core.exceptions import HttpResponseError as _Refused
    from azure.core.exceptions import ResourceExistsError as _Exists
    from azure.core.exceptions import ResourceNotFoundError as _NotFound
except ImportError:

    class _Refused(Exception):  # type: ignore[no-redef]
        """Any refusal."""

    class _Exists(_Refused):  # type: ignore[no-redef]
        """The name is taken."""

    class _NotFound(_Refused):  # type: ignore[no-redef]
        """The entity or rule does not exist."""


_STATUSES_TRIED_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""azure-core's set. Every request is idempotent in HTTP's sense: a GET, PUT or DELETE."""


class HttpResponseError(_Refused):
    """A bridge has refused a request.

    Attributes:
        message: the reason, with Azure's sub-code.
        status_code: the HTTP status of the refusal, such as 400.
    """

    def __init__(self, message: str, status_code: int, content: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        self._retryable = status_code in _STATUSES_TRIED_AGAIN
        self._content = content

    def __str__(self) -> str:
        return f"{self.message}\nContent: {self._content}" if self._content else self.message


class ResourceNotFoundError(HttpResponseError, _NotFound):
    """The entity or rule does not exist."""


class ResourceExistsError(HttpResponseError, _Exists):
    """The name is taken, or another change of the entity is under way."""


_OF_STATUS: dict[int, type[HttpResponseError]] = {
    404: ResourceNotFoundError,
    409: ResourceExistsError,
}


def of_status(status: int, detail: str, content: str) -> HttpResponseError:
    """Return the error for an answer's status."""
    return _OF_STATUS.get(status, HttpResponseError)(detail, status, content)
