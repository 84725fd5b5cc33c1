"""A delivery strategy: it decides when and where results of background tasks are reported.

It only decides: the host delivers, waits, and ensures that nothing is delivered twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

from conclave_sdk.types import JsonObject

MOST_ATTEMPTS = 4
"""The attempts of the host to deliver one result."""

_FIRST_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 60_000


class TaskStatus(Enum):
    """The final state of a background task."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"


@dataclass
class EndedTask:
    """A background task that has ended. `attempts` is the number of failed deliveries."""

    task_id: str
    worker: str = "worker"
    description: str = ""
    status: TaskStatus = TaskStatus.COMPLETED
    output: str | None = None
    error: str | None = None
    duration_ms: int = 0
    attempts: int = 0
    metadata: JsonObject = field(default_factory=dict)


class ChannelKind(Enum):
    """The kind of a channel."""

    TEXT = "text"
    WEB = "web"
    VOICE = "voice"
    AGENT = "agent"
    OTHER = "other"


class Activity(Enum):
    """The activity of a channel."""

    IDLE = "idle"
    SPEAKING = "speaking"
    USER_SPEAKING = "user-speaking"
    GENERATING = "generating"


@dataclass
class Channel:
    """A channel of the room. A muted one receives no messages at present."""

    id: str
    kind: ChannelKind = ChannelKind.TEXT
    activity: Activity = Activity.IDLE
    muted: bool = False


class Wake:
    """Base class of the reasons for which a strategy is called."""


@dataclass
class TaskEnded(Wake):
    """The task with this id ended."""

    task_id: str


@dataclass
class ChannelIdle(Wake):
    """The channel for which the strategy waits has become idle."""

    channel: str


@dataclass
class Timer(Wake):
    """The time of a `wait` is over."""


@dataclass
class SendFailed(Wake):
    """A channel did not accept a message, with the reason."""

    reason: str


class Decision:
    """Base class of the decisions of a strategy."""


@dataclass
class Deliver(Decision):
    """Report these results now. `prompt` of `None` is the host's text for the status."""

    tasks: list[str]
    channel: str | None = None
    prompt: str | None = None
    interrupt: bool = False


@dataclass
class MoveToInbox(Decision):
    """Leave these results in the inbox, for the agent's next turn."""

    tasks: list[str]


@dataclass
class Wait(Decision):
    """Ask again when the channel is idle, or after this time at the latest."""

    channel: str | None
    timeout_ms: int


@dataclass
class GiveUp(Decision):
    """Move all pending results to the inbox, with the reason."""

    reason: str


class RoomSource(Protocol):
    """Where a context reads: the host, or the snapshot of a test."""

    def read(self, part: str) -> Any:
        """Return a part of the room."""


class Context:
    """The room as this decision may see it. A part is read when it is first looked at."""

    def __init__(self, source: RoomSource) -> None:
        """Create a context. Tests get one from `RoomSnapshot.context`."""
        self._source = source

    @cached_property
    def room_id(self) -> str:
        """The room's id."""
        return str(self._source.read("room_id"))

    @cached_property
    def now_ms(self) -> int:
        """The recorded time in milliseconds since 1970: the only clock for a strategy."""
        return int(self._source.read("now_ms"))

    @cached_property
    def pending_results(self) -> Sequence[EndedTask]:
        """The results that are not delivered yet, oldest first."""
        return list(self._source.read("pending_results"))

    @cached_property
    def channels(self) -> Sequence[Channel]:
        """The channels that this strategy may send to, muted ones included."""
        return list(self._source.read("channels"))

    @cached_property
    def preferred_channel(self) -> Channel | None:
        """The preferred channel: voice first, then any other; `None` if there is none."""
        wanted = self._source.read("preferred_channel")
        return next((channel for channel in self.channels if channel.id == wanted), None)

    @cached_property
    def notified_task(self) -> str | None:
        """The task that is notified; `None` if none waits for the results."""
        task: str | None = self._source.read("notified_task")
        return task


class DeliveryStrategy:
    """A delivery strategy; a subclass is exported."""

    def decide(self, wake: Wake, context: Context) -> list[Decision]:
        """Return the decisions, in order. Without any, everything waits until the next wake.

        An exception is recorded, and the waiting results are left in the inbox.
        """
        raise NotImplementedError


def deliver(
    results: Iterable[EndedTask | str],
    *,
    channel: Channel | str | None = None,
    prompt: str | None = None,
    interrupt: bool = False,
) -> Decision:
    """Report these results now.

    Args:
        results: The results, or their ids.
        channel: The channel; the preferred one without it.
        prompt: The text; the host's text for the status without it.
        interrupt: Stop the channel's current output. Never interrupt a user who is speaking.
    """
    name = channel.id if isinstance(channel, Channel) else channel
    return Deliver(_ids(results), name, prompt, interrupt)


def move_to_inbox(results: Iterable[EndedTask | str]) -> Decision:
    """Leave these results in the inbox, for the agent's next turn."""
    return MoveToInbox(_ids(results))


def wait(timeout_ms: int) -> Decision:
    """Ask again after this many milliseconds. The earliest wait of an answer counts."""
    return Wait(None, timeout_ms)


def wait_for(channel: Channel | str, timeout_ms: int) -> Decision:
    """Ask again when the channel is idle, or after this many milliseconds at the latest."""
    return Wait(channel.id if isinstance(channel, Channel) else channel, timeout_ms)


def give_up(reason: str) -> Decision:
    """Move all pending results to the inbox, with the reason."""
    return GiveUp(reason)


def worded(decisions: Iterable[Decision], prompt: str) -> list[Decision]:
    """Return the decisions with this prompt in every message without one."""
    return [
        dataclasses.replace(decision, prompt=prompt)
        if isinstance(decision, Deliver) and decision.prompt is None and prompt
        else decision
        for decision in decisions
    ]


@dataclass
class Waited:
    """The waiting time of the oldest result, kept in the scratch between calls.

    When the oldest one is delivered, the next one's time begins:
    `waited = scratch.get(Waited) or Waited()`, and `scratch.set(waited)` at the end.
    """

    oldest: str = ""
    since_ms: int = 0

    def ms(self, waiting: Sequence[EndedTask], now_ms: int) -> int:
        """Return the milliseconds for which the first result has been seen to wait; 0 without."""
        if not waiting:
            self.oldest, self.since_ms = "", 0
            return 0
        if self.oldest != waiting[0].task_id:
            self.oldest, self.since_ms = waiting[0].task_id, now_ms
        return max(0, now_ms - self.since_ms)


def backoff(attempts: int) -> int | None:
    """Return the milliseconds to wait after this many failed deliveries.

    1 s, doubled each time, at most 60 s; `None` if there are no more attempts.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    return min(_FIRST_PAUSE_MS << max(attempts - 1, 0), _LONGEST_PAUSE_MS)


@dataclass
class Due:
    """The ids of the results that may be delivered now, and the decisions about the others."""

    now: list[str] = field(default_factory=list)
    rest: list[Decision] = field(default_factory=list)


def due(wake: Wake, waiting: Iterable[EndedTask]) -> Due:
    """Split the waiting results by their attempts.

    New results may be delivered at once. Failed ones are due at their time, or when the awaited
    channel is idle; after `MOST_ATTEMPTS` they are moved to the inbox.
    """
    results = list(waiting)
    is_time = isinstance(wake, (Timer, ChannelIdle))
    now = [
        ended.task_id
        for ended in results
        if ended.attempts == 0 or (is_time and ended.attempts < MOST_ATTEMPTS)
    ]
    over = [ended.task_id for ended in results if ended.attempts >= MOST_ATTEMPTS]
    rest: list[Decision] = [move_to_inbox(over)] if over else []
    # In any other wake the wait of the earlier failure still holds, and another would postpone it.
    if isinstance(wake, SendFailed):
        pauses = [backoff(ended.attempts) for ended in results if ended.attempts > 0]
        least = min((pause for pause in pauses if pause is not None), default=None)
        rest += [] if least is None else [wait(least)]
    return Due(now, rest)


def _ids(results: Iterable[EndedTask | str]) -> list[str]:
    return [item.task_id if isinstance(item, EndedTask) else item for item in results]
