"""Distinguishes a refusal (the request can never succeed) from an outage (it may succeed later)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from mlflow.exceptions import MlflowException

from mlcl.errors import UserError

REFUSED = {
    "ALREADY_EXISTS",
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_CONFLICT",
    "RESOURCE_DOES_NOT_EXIST",
}
"""MLflow's error codes for requests that can never succeed, for example for a deleted run or another user's
experiment. A wrong password is not among them."""
OF_FILES = {
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
"""The errors of a file system that concern one path. A full or failing disk is an outage."""
OF_NETWORKS = {
    "ConnectionError",
    "DBAPIError",
    "HTTPClientError",
    "HTTPError",
    "ServiceRequestError",
    "ServiceResponseError",
    "Timeout",
    "TimeoutError",
    "TransportError",
}
"""The base classes of the outages in requests, urllib3, SQLAlchemy and the clients of S3, Azure and Google,
by name: not all are installed, and they have no common base."""


class Refused(Exception):  # noqa: N818
    """Raised if a log can never be sent."""


def refusal(error: Exception) -> str | None:
    """Returns why a request that raised `error` can never succeed; None if it may succeed later."""
    if isinstance(error, (Refused, UserError)):
        return str(error)
    if isinstance(error, MlflowException):
        return str(error) if error.error_code in REFUSED else None
    if any(_is_outage(cause) for cause in _error_chain(error)):
        return None
    return f"{type(error).__name__}: {error}"


def _is_outage(error: BaseException) -> bool:
    status = _http_status(error)
    if status is not None:
        return status in (401, 408, 429) or status >= 500
    if OF_NETWORKS & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in OF_FILES)


def _http_status(error: BaseException) -> int | None:
    """Returns the HTTP status in an error of requests or boto3; None for an error without an answer."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        answer = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    status = getattr(answer, "status_code", answer)
    return status if isinstance(status, int) else None


def _error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that led to it: boto3 names the cause of a failed upload only there."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
