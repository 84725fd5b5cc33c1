"""A condenser: it selects the parts of a history to leave out of the next prompts.

The journal keeps everything, and the host never leaves out a call without its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from conclave_sdk.agents import View

LEFT_OUT = "[left out]"
"""The replacement for a text that is left out."""


class Reason(Enum):
    """The reason for a condensation."""

    SIZE = "size"
    REQUESTED = "requested"
    OVERFLOW = "overflow"


@dataclass
class Span:
    """A range of history entries: `start` inclusive, `end` exclusive."""

    start: int
    end: int


@dataclass
class Masked:
    """A text that replaces the text of one entry."""

    index: int
    text: str


@dataclass
class Condensation:
    """What may be left out. Each method changes it, and returns it."""

    spans: list[Span] = field(default_factory=list)
    masked: list[Masked] = field(default_factory=list)
    summary: str | None = None

    def forget(self, start: int, end: int) -> Condensation:
        """Leave out the entries of a range, which may be empty."""
        if start < end:
            self.spans.append(Span(start, end))
        return self

    def leave_out(self, index: int) -> Condensation:
        """Replace an entry's text with `[left out]`; its calls stay."""
        self.masked.append(Masked(index, LEFT_OUT))
        return self

    def cut(self, index: int, beginning: str, end: str) -> Condensation:
        """Shorten an entry's text to its own beginning and end, with an `…` between.

        The host refuses a condensation with other words.
        """
        self.masked.append(Masked(index, f"{beginning}…{end}"))
        return self

    def with_summary(self, summary: str) -> Condensation:
        """Add a summary of the omitted entries. A model reads it as data."""
        self.summary = summary
        return self


class Condenser:
    """A condenser; a subclass is exported."""

    def condense(self, why: Reason, view: View) -> Condensation | None:
        """Return what may be left out, by the indices of `view.history`; `None` for nothing.

        An exception leaves the history unchanged.
        """
        raise NotImplementedError
