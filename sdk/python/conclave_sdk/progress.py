"""The progress of a long call, for display."""

from __future__ import annotations

from conclave_sdk import _host


def report(done: int, total: int | None = None, message: str = "") -> None:
    """Report that `done` of `total` units are complete; `total` is `None` if it is unknown."""
    _host.current().report(done, total, message)
