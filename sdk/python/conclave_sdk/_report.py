"""The result of a script that the harness played, with the guarantees that were broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from conclave_sdk.delivery import Decision, Wake


class Guarantee(Enum):
    """A strategy's guarantee to the users that it speaks to."""

    ANSWERS = "answers each wake"
    NOTHING_LOST = "loses no result"
    DECIDES_ONCE = "decides once about each result"
    ONLY_PENDING_RESULTS = "decides only about pending results"
    ONLY_ITS_CHANNELS = "speaks only on open channels that it was offered"
    NEVER_OVER_A_USER = "never speaks over a user"
    BACKS_OFF = "waits after a failed message"
    NOT_BUSY = "does not wait in a loop"
    REPORTS_FAILURES = "reports a failure as a failure"
    DETERMINISTIC = "decides the same in the same room"
    AS_EXPECTED = "does what the script expects"


@dataclass
class Breach:
    """A broken guarantee, with its time in milliseconds; `play` is empty for the first play."""

    guarantee: Guarantee
    at: int
    what: str
    play: str = ""


class BrokenGuarantees(AssertionError):
    """The guarantees that a strategy broke."""

    def __init__(self, breaches: list[Breach]) -> None:
        """Create the error, whose text lists the first ten."""
        lines = []
        for breach in breaches[:10]:
            play = f" ({breach.play})" if breach.play else ""
            name = f"{breach.guarantee.name} ({breach.guarantee.value})"
            lines.append(f"{name}, at {breach.at} ms{play}: {breach.what}")
        if len(breaches) > 10:
            lines.append(f"… and {len(breaches) - 10} more")
        super().__init__("\n".join(lines))
        self.breaches = breaches


@dataclass
class AcceptedMessage:
    """A message that a channel accepted."""

    at: int
    tasks: list[str]
    channel: str
    prompt: str | None
    interrupted: bool


@dataclass
class InboxEntry:
    """A result that was left in the inbox, with the reason."""

    at: int
    why: str


@dataclass
class WakeRecord:
    """A wake, and the decisions about it, or the text of an exception."""

    at: int
    wake: Wake
    pending: int
    decided: list[Decision] | str


@dataclass
class Report:
    """The result of a script: that of the first play, with the breaches of all."""

    delivered: list[AcceptedMessage] = field(default_factory=list)
    inbox: dict[str, InboxEntry] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    wakes: list[WakeRecord] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)

    def check(self, but: tuple[Guarantee, ...] = ()) -> None:
        """Raise `BrokenGuarantees` unless all guarantees but these held."""
        broken = [breach for breach in self.breaches if breach.guarantee not in but]
        if broken:
            raise BrokenGuarantees(broken)

    def delivered_at(self, task: str) -> int | None:
        """Return the time at which a result was delivered; `None` if it was not."""
        return next((message.at for message in self.delivered if task in message.tasks), None)

    def expect(self, expected: Mapping[str, Any]) -> None:
        """Compare the report with what a script expects."""
        came: dict[str, Any] = {
            "delivered": [[message.at, message.tasks] for message in self.delivered],
            "inbox": sorted(self.inbox),
        }
        for part, wanted in expected.items():
            if came[part] != [list(one) if part == "delivered" else one for one in wanted]:
                what = f"{part} should be {wanted}, and was {came[part]}"
                self.breaches.append(Breach(Guarantee.AS_EXPECTED, 0, what))
