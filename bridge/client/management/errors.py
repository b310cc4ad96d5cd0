"""What a bridge refuses of administration, under azure-core's names.

Where azure-core is installed these are its errors too: `except` clauses that name those go on
working.
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
        """There is no such thing."""


_STATUSES_TRIED_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""Those of azure-core. Every request is idempotent, as HTTP has it: it gets, puts or deletes."""


class HttpResponseError(_Refused):
    """A bridge has refused a request.

    Attributes:
        message: why, with Azure's sub-code.
        status_code: the status of HTTP that stands for it, such as 400.
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
    """No such entity or rule."""


class ResourceExistsError(HttpResponseError, _Exists):
    """The name is taken, or somebody else is changing the entity."""


_OF_STATUS: dict[int, type[HttpResponseError]] = {
    404: ResourceNotFoundError,
    409: ResourceExistsError,
}


def of_status(status: int, detail: str, content: str) -> HttpResponseError:
    """Return the error of an answer."""
    return _OF_STATUS.get(status, HttpResponseError)(detail, status, content)
