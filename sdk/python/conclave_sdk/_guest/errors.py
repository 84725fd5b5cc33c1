"""Conversions between the errors of the bindings and the SDK's exceptions."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from componentize_py_types import Err

from conclave_sdk import _host, errors
from conclave_sdk._guest.codec import well_formed, wit

T = TypeVar("T")

source_paths: dict[str, str] = {}
"""The path in the author's folder of each file in the component, for tracebacks."""


_OWN_PACKAGES = frozenset(
    ["conclave_sdk", "wit_world", "componentize_py_runtime.py", "componentize_py_types.py"]
)
"""Packages and modules of the component that are not the author's."""


def calling(capability: str, target: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call an import, and raise its error as the SDK's exception."""
    sent = [well_formed(item) if isinstance(item, str) else item for item in arguments]
    try:
        return function(*sent)
    except Err as error:
        _raise(capability, target, error.value)


def error_of(capability: str, target: str, error: Any) -> errors.Error:
    """Return the SDK's exception for an error of the contract that is no builtin one."""
    try:
        _raise(capability, target, error)
    except errors.Error as raised:
        return raised


def _raise(capability: str, target: str, error: Any) -> NoReturn:
    # A denial alone is the error of `secrets`.
    if hasattr(error, "capability"):
        raise errors.Denied(error.capability, error.target, error.detail) from None
    case = type(error).__name__.partition("_")[2]
    value: Any = getattr(error, "value", None)
    match case:
        case "Denied":
            raise errors.Denied(value.capability, value.target, value.detail) from None
        case "NotFound":
            message = "no such file or directory"
            raise FileNotFoundError(errno.ENOENT, message, target) from None
        case "NotAFile":
            message = "it is a directory, not a file"
            raise IsADirectoryError(errno.EISDIR, message, target) from None
        case "NotADirectory":
            message = "it is a file, not a directory"
            raise NotADirectoryError(errno.ENOTDIR, message, target) from None
        case "QuotaExceeded" | "TooLarge" | "LimitExceeded":
            raise errors.QuotaExceeded(capability, value) from None
        case "Unavailable":
            raise errors.Unavailable(value) from None
        case "TimedOut":
            raise TimeoutError(f"{capability}: no answer in time from {target}") from None
        case "InvalidRequest":
            raise errors.InvalidRequest(f"{capability}: {value}") from None
        case "BudgetExhausted":
            raise errors.BudgetExhausted(
                f"{capability}: too little of {value} is left for this request"
            ) from None
        case "UnknownModel":
            raise errors.UnknownModel(f"{capability}: there is no model named {value}") from None
        case "ContextTooLong":
            raise errors.ContextTooLong(value) from None
        case "Unknown":
            raise errors.UnknownBlob(f"{capability}: no access to {target}") from None
        case _:
            raise errors.Error(str(value)) from None


class ErrorForm:
    """The error variant of one export, such as `ToolError` of `tools`."""

    def __init__(self, interface: str, variant: str) -> None:
        self._interface = interface
        self._variant = variant
        self._denial = wit("types", "Denial")

    def of(self, error: Exception) -> Any:
        """Return the contract's error for an exception.

        The traceback of one that the SDK does not know goes to the plugin's log: it is a mistake in
        the plugin's code.
        """
        if isinstance(error, errors.Denied):
            return self._denied(error.capability, error.target, error.detail)
        if isinstance(error, OSError) and isinstance(error.filename, str):
            refused = _refused(error, error.filename)
            if refused:
                return self._denied(refused.capability, refused.target, refused.detail)
        if isinstance(error, errors.InvalidArguments):
            case = self._case("InvalidArguments") or self._case("Malformed")
            if case:
                return case(well_formed(_text(error)))
        if isinstance(error, errors.Unavailable):
            case = self._case("Unavailable")
            if case:
                return case(error.retry_after_ms)
        if not isinstance(error, errors.Error):
            _log_traceback(error)
            return self._other(one_line(error))
        return self._other(_text(error))

    def _case(self, name: str) -> Any:
        try:
            return wit(self._interface, f"{self._variant}_{name}")
        except AttributeError:
            return None

    def _denied(self, capability: str, target: str, detail: str) -> Any:
        texts = map(well_formed, (capability, target, detail))
        return self._case("Denied")(self._denial(*texts))

    def _other(self, text: str) -> Any:
        return self._case("Other")(well_formed(text))

    def raise_from(self, error: Exception) -> NoReturn:
        """Raise the contract's error for an exception, as the bindings expect it."""
        raise Err(self.of(error)) from None


def one_line(error: BaseException) -> str:
    """Return the type and the message of an exception, such as `KeyError: 'nothing'`."""
    message = " ".join(_text(error).split())
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # `__str__` of the plugin's own class raised. What leaves an export otherwise is a trap.
        return "its text cannot be read"


def _log_traceback(error: Exception) -> None:
    shown = traceback.TracebackException.from_exception(error)
    _leave_out_own_frames(shown)
    for line in "".join(shown.format()).rstrip().splitlines():
        for file, path in source_paths.items():
            line = line.replace(f'File "{file}"', f'File "{path}"')
        _host.current().log("error", line)


def _leave_out_own_frames(shown: traceback.TracebackException) -> None:
    """Leave out the frames of the SDK and of the bindings, unless there are no others."""
    todo: list[traceback.TracebackException | None] = [shown]
    while todo:
        one = todo.pop()
        if one is None:
            continue
        authors = [frame for frame in one.stack if not _is_own(frame.filename)]
        if authors:
            one.stack[:] = authors
        todo += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or [])]


def _is_own(file: str) -> bool:
    parts = file.replace("\\", "/").split("/")
    return any(part in _OWN_PACKAGES for part in parts)


def _refused(error: OSError, path: str) -> errors.Denied | None:
    """Return the denial of an error of `open` and its like, whose folders are those of `files`."""
    if isinstance(error, PermissionError):
        return errors.Denied("files", path, error.strerror or "")
    # Outside of every granted folder WASI knows no file at all.
    if not isinstance(error, FileNotFoundError) or not path.startswith("/"):
        return None
    if any(os.path.isdir(folder) for folder in _above(path)):
        return None
    try:
        # The host refuses this too, and reports the missing grant to the operator.
        _host.current().file_read(path, 0, 0)
    except errors.Denied as denied:
        return denied
    except Exception:
        pass
    return None


def _above(path: str) -> list[str]:
    """Return the folders above a path, without the root."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts))]
