"""A security analyzer: it rates the risk of an action before the host carries it out.

The operator's rules decide which ratings need an approval. An analyzer that raises, is refused or
times out counts as a high risk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from conclave_sdk.actions import Action
from conclave_sdk.agents import View


class Risk(Enum):
    """The risk of an action."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass
class Verdict:
    """The risk of an action. The reason is for the approver, and may be empty."""

    risk: Risk
    reason: str = ""


class SecurityAnalyzer:
    """A security analyzer; a subclass is exported."""

    def assess(self, action: Action, thought: str, view: View) -> Verdict:
        """Return the risk of an action. A tool call is a `Reply` with that one call."""
        raise NotImplementedError


def low(reason: str = "") -> Verdict:
    """Return a low risk."""
    return Verdict(Risk.LOW, reason)


def medium(reason: str = "") -> Verdict:
    """Return a medium risk."""
    return Verdict(Risk.MEDIUM, reason)


def high(reason: str = "") -> Verdict:
    """Return a high risk, which should not pass without an approval."""
    return Verdict(Risk.HIGH, reason)
