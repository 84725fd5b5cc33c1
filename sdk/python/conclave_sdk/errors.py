"""The errors of the contract as exceptions.

A plugin may let any of them pass: the SDK returns it to the host in the contract's typed form.
Absent files and wrong kinds of files are the builtin `FileNotFoundError`, `IsADirectoryError` and
`NotADirectoryError`; a request that takes too long is the builtin `TimeoutError`.
"""

from __future__ import annotations


class Error(Exception):
    """Base class of the errors of the contract. As a tool's error, its text goes to the model."""


class ToolError(Error):
    """A failure that the tool expects. The text is for the user and the model."""


class Denied(Error, PermissionError):
    """The host denied a capability. Let it pass, so that the operator sees the missing grant."""

    def __init__(self, capability: str, target: str, detail: str = "") -> None:
        """Create a denial of `target`, such as a path, for a capability such as `files`."""
        # The detail for `tools` names the plugin and the tool.
        text = f"{capability} was refused: {target}: {detail or 'not granted'}"
        super().__init__(detail if capability == "tools" and detail else text)
        self.capability = capability
        self.target = target
        self.detail = detail


class InvalidArguments(Error, ValueError):
    """An argument is wrong. The text names it, and the model can correct it.

    In an agent, it means that a model's reply could not be parsed.
    """


class Unavailable(Error):
    """A resource outside of the plugin is unavailable; the caller may retry."""

    def __init__(self, retry_after_ms: int | None = None) -> None:
        """Create the error; `retry_after_ms` is the time until the next attempt, if known."""
        when = "" if retry_after_ms is None else f"; try again in {retry_after_ms} ms"
        super().__init__(f"not available now{when}")
        self.retry_after_ms = retry_after_ms


class QuotaExceeded(Error):
    """A limit of a capability is used up. Nothing was written."""

    def __init__(self, capability: str, limit: int | str) -> None:
        """Create the error for a limit in bytes, entries or files, or for a limit's name."""
        super().__init__(f"{capability}: the limit of {limit} is reached")
        self.capability = capability
        self.limit = limit


class InvalidRequest(Error, ValueError):
    """A request of `fetch` is malformed. Nothing was sent."""


class UnknownBlob(Error, LookupError):
    """The call has no access to a blob with this hash."""


class UnknownModel(Error, LookupError):
    """The operator's config has no model of this name."""


class BudgetExhausted(Error):
    """A limit of the run, the task or the grant is used up; names the limit. Nothing was sent."""


class ContextTooLong(Error):
    """The prompt does not fit into the model's context."""

    def __init__(self, tokens: int) -> None:
        """Create the error; `tokens` do fit."""
        super().__init__(f"model: the prompt does not fit in {tokens} tokens")
        self.tokens = tokens


class AppError(Exception):
    """The plugin's code cannot be described or built.

    `hint` is the remedy in one sentence.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        """Create the error from one sentence and its remedy."""
        super().__init__(what)
        self.hint = hint
