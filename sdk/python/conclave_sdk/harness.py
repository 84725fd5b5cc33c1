"""The test kit for delivery strategies: it plays a script of a room to a strategy.

Like the host, it keeps a clock, channels, one timer and the scratch, and it reports the guarantees
that the strategy breaks. It needs no waiting, since the clock is the script's.

    report = (
        Harness(WhenIdle)
        .voice("phone", says_ms=2_000)
        .activity("phone", Activity.USER_SPEAKING)
        .at(300)
        .completes("task-1", "48 metres")
        .at(5_000)
        .activity("phone", Activity.IDLE)
        .run()
    )
    report.check()
    assert report.delivered_at("task-1") == 5_000

The script is played four times: unchanged, again with the same result, with everything of one
moment joined into one wake, and with the first answer to each wake lost, as in a crash. All
guarantees must hold in every play.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from conclave_sdk._report import (
    AcceptedMessage,
    Breach,
    BrokenGuarantees,
    Guarantee,
    InboxEntry,
    Report,
    WakeRecord,
)
from conclave_sdk._script import add_script
from conclave_sdk.delivery import (
    MOST_ATTEMPTS,
    Activity,
    Channel,
    ChannelIdle,
    ChannelKind,
    Decision,
    Deliver,
    DeliveryStrategy,
    EndedTask,
    GiveUp,
    MoveToInbox,
    SendFailed,
    TaskEnded,
    TaskStatus,
    Timer,
    Wait,
    Wake,
)
from conclave_sdk.testing import FakeHost, RoomSnapshot

__all__ = [
    "AcceptedMessage",
    "Breach",
    "BrokenGuarantees",
    "Guarantee",
    "Harness",
    "InboxEntry",
    "Report",
    "WakeRecord",
]

# The clock time of the beginning. It is not 0, to expose a strategy that uses 0 for "never".
_BEGINNING_MS = 1_760_000_000_000
# The longest wait of a strategy, as in the host.
_MAX_WAIT_MS = 60 * 60 * 1_000
# Milliseconds for which the clock runs after the last line of the script.
_AFTERWARDS_MS = 60 * 60 * 1_000
# Timers that follow each other faster than this without any action are a busy loop.
_BUSY_MS = 100
_BUSY_TIMERS = 20
# A strategy that takes more wakes in one play never ends.
_MAX_WAKES = 50_000


@dataclass
class _Play:
    name: str = ""
    asks_twice: bool = False
    joins: bool = False
    loses_answers: bool = False


class Harness:
    """A strategy, and the script that is played to it. Nothing is played before `run`."""

    def __init__(
        self, strategy: type[DeliveryStrategy], settings: dict[str, Any] | None = None
    ) -> None:
        """Create a harness with a room without channels, and the plugin's settings."""
        self._strategy = strategy
        self._settings = settings or {}
        self._channels: list[tuple[str, ChannelKind, int]] = []
        self._lines: list[tuple[int, Callable[[_Room], None]]] = []
        self._now = 0
        self._notify = "desk"
        self._until: int | None = None
        self._expected: Mapping[str, Any] = {}

    def script(self, data: Mapping[str, Any]) -> Harness:
        """Add a script that is data, with the words of the harness of every language.

        Raises `ValueError` with the wrong word and the valid ones.
        """
        add_script(self, data)
        self._notify = data.get("notify", self._notify)
        self._until = data.get("until", self._until)
        self._expected = data.get("expect", self._expected)
        return self

    def channel(
        self, channel: str, kind: ChannelKind = ChannelKind.TEXT, *, says_ms: int = 0
    ) -> Harness:
        """Add a channel on which the strategy may speak; it is busy for a time with each message.

        That time is 0 for a text.
        """
        self._channels.append((channel, kind, says_ms))
        return self

    def voice(self, channel: str, says_ms: int) -> Harness:
        """Add a voice channel that is busy for this many milliseconds with each message."""
        return self.channel(channel, ChannelKind.VOICE, says_ms=says_ms)

    def at(self, ms: int) -> Harness:
        """Set the time of the following lines, in milliseconds after the beginning."""
        self._now = ms
        return self

    def completes(self, task: str, output: str) -> Harness:
        """Complete a background task with that answer."""
        return self.ended(EndedTask(task, output=output))

    def burst(self, name: str, count: int) -> Harness:
        """Complete tasks in the same moment: `NAME-0`, `NAME-1` and so on."""
        for number in range(count):
            self.completes(f"{name}-{number}", "done")
        return self

    def ends(self, task: str, status: TaskStatus, error: str) -> Harness:
        """End a background task with another status and an error."""
        return self.ended(EndedTask(task, status=status, error=error))

    def ended(self, ended: EndedTask) -> Harness:
        """End a background task as a value of the contract says."""
        return self._happens(lambda room: room.ends(dataclasses.replace(ended)))

    def activity(self, channel: str, activity: Activity) -> Harness:
        """Make a channel busy, or idle again."""
        return self._happens(lambda room: room.becomes(channel, activity, None))

    def refuses(self, channel: str, times: int) -> Harness:
        """Make a channel reject its next messages."""
        return self._happens(lambda room: room.change(channel, refusals=times))

    def mutes(self, channel: str, muted: bool = True) -> Harness:
        """Mute a channel, or unmute it."""
        return self._happens(lambda room: room.change(channel, muted=muted))

    def unmutes(self, channel: str) -> Harness:
        """Unmute a channel."""
        return self.mutes(channel, muted=False)

    def leaves(self, channel: str) -> Harness:
        """Remove a channel from the room."""
        return self._happens(lambda room: room.leaves(channel))

    def crashes(self, for_ms: int) -> Harness:
        """Stop the host for this many milliseconds; the answer to the next wake is lost."""
        return self._happens(lambda room: room.crashes(for_ms))

    def _happens(self, event: Callable[[_Room], None]) -> Harness:
        self._lines.append((self._now, event))
        return self

    def run(self) -> Report:
        """Play the script four times, and return the report."""
        report = self._play(_Play(asks_twice=True))
        report.expect(self._expected)
        again = self._play(_Play("played again"))
        if again.wakes != report.wakes:
            what = "the same script, played again, was answered otherwise"
            report.breaches.append(Breach(Guarantee.DETERMINISTIC, 0, what))
        for play in [
            _Play("with wakes of one moment joined", joins=True),
            _Play("with each answer lost once", loses_answers=True),
        ]:
            report.breaches += self._play(play).breaches
        return report

    def _play(self, play: _Play) -> Report:
        lines = sorted(self._lines, key=lambda line: line[0])
        room = _Room(self._strategy, self._settings, self._channels, play, self._notify)
        return room.play(lines, self._until)


@dataclass
class _Open:
    """A channel of the room."""

    channel: Channel
    says_ms: int
    refusals: int = 0
    quiet_at: int | None = None


_WEIGHTS: dict[type[Wake], int] = {TaskEnded: 0, Timer: 1, ChannelIdle: 2, SendFailed: 3}


class _Room:
    """A simulated host: it wakes the strategy, and checks and performs its decisions."""

    def __init__(
        self,
        strategy: type[DeliveryStrategy],
        settings: dict[str, Any],
        channels: list[tuple[str, ChannelKind, int]],
        play: _Play,
        notify: str,
    ) -> None:
        self._strategy = strategy
        self._settings = settings
        self._play = play
        self._notify = notify
        self._channels = {
            name: _Open(Channel(name, kind), says_ms) for name, kind, says_ms in channels
        }
        self._now = 0
        self._known: set[str] = set()
        self._waiting: dict[str, EndedTask] = {}
        self._timer: int | None = None
        # The awaited channel, and whether it was idle when last checked.
        self._waits_for: tuple[str, bool] | None = None
        self._scratch = b""
        self._wakes: list[Wake] = []
        self._crash_ms: int | None = None
        # The results of a failed message, until the strategy is notified, and then those of the
        # notification.
        self._failed: list[str] = []
        self._notified_of: list[str] = []
        self._last_timer: int | None = None
        self._timers = 0
        self._has_settled = False
        self._report = Report()

    def play(self, lines: list[tuple[int, Callable[[_Room], None]]], until: int | None) -> Report:
        rest = list(lines)
        end = (rest[-1][0] if rest else 0) + _AFTERWARDS_MS if until is None else until
        while True:
            times = [rest[0][0]] if rest else []
            times += [o.quiet_at for o in self._channels.values() if o.quiet_at is not None]
            times += [] if self._timer is None else [self._timer]
            if not times or min(times) > end:
                break
            moment = min(times)
            self._now = max(self._now, moment)
            # The time may have jumped over several lines, which still happen in their order.
            while rest and rest[0][0] <= moment:
                rest.pop(0)[1](self)
                if not self._play.joins:
                    self._wake_all()
            for name, opened in self._channels.items():
                if opened.quiet_at is not None and opened.quiet_at <= moment:
                    self.becomes(name, Activity.IDLE, None)
            if self._timer is not None and self._timer <= moment:
                self._timer = None
                self._wakes.append(Timer())
            if self._play.joins and self._wakes:
                # The most informative wake stands for all, and the last of equal ones.
                self._wakes = [max(reversed(self._wakes), key=lambda wake: _WEIGHTS[type(wake)])]
            self._wake_all()
            if len(self._report.wakes) >= _MAX_WAKES:
                self._breaks(Guarantee.NOT_BUSY, f"it was woken {_MAX_WAKES} times")
                break
        return self._end(end)

    # What the script says.

    def ends(self, ended: EndedTask) -> None:
        self._known.add(ended.task_id)
        self._waiting[ended.task_id] = ended
        self._wakes.append(TaskEnded(ended.task_id))

    def becomes(self, name: str, activity: Activity, quiet_at: int | None) -> None:
        opened = self._channels.get(name)
        if opened is None:
            return
        opened.quiet_at = quiet_at
        opened.channel = dataclasses.replace(opened.channel, activity=activity)
        if self._waits_for is None or self._waits_for[0] != name:
            return
        was_idle, is_idle = self._waits_for[1], activity is Activity.IDLE
        self._waits_for = (name, is_idle)
        if is_idle and not was_idle:
            self._wakes.append(ChannelIdle(name))

    def change(self, name: str, *, refusals: int | None = None, muted: bool | None = None) -> None:
        opened = self._channels.get(name)
        if opened is not None and refusals is not None:
            opened.refusals = refusals
        if opened is not None and muted is not None:
            opened.channel = dataclasses.replace(opened.channel, muted=muted)

    def leaves(self, name: str) -> None:
        self._channels.pop(name, None)

    def crashes(self, for_ms: int) -> None:
        self._crash_ms = for_ms

    # What the strategy answers.

    def _wake_all(self) -> None:
        while self._wakes and len(self._report.wakes) < _MAX_WAKES:
            wake = self._wakes.pop(0)
            self._notified_of, self._failed = self._failed, []
            if self._waiting:
                self._wake(wake)

    def _wake(self, wake: Wake) -> None:
        if self._play.loses_answers or self._crash_ms is not None:
            # The host stopped before the answer was recorded: it has no effect, and is asked for
            # again afterwards.
            self._ask(wake, self._snapshot())
            self._now += 1_000 if self._crash_ms is None else self._crash_ms
            self._crash_ms = None
        if isinstance(wake, Timer) or (
            isinstance(wake, ChannelIdle) and self._waits_for and self._waits_for[0] == wake.channel
        ):
            self._waits_for = None
        room = self._snapshot()
        answer = self._ask(wake, room)
        if self._play.asks_twice and self._ask(wake, room) != answer:
            what = f"asked twice for {wake}, it answered otherwise the second time"
            self._breaks(Guarantee.DETERMINISTIC, what)
        decided, scratch = answer
        self._report.wakes.append(WakeRecord(self._now, wake, len(self._waiting), decided))
        if isinstance(decided, str):
            self._breaks(Guarantee.ANSWERS, f"woken by {wake}, it failed: {decided}")
            self._move_all_to_inbox("the strategy failed")
        else:
            self._scratch = scratch
            self._check_words(wake, room, decided)
            self._perform(wake, decided)
        self._check_pace(wake)

    def _snapshot(self) -> RoomSnapshot:
        return RoomSnapshot(
            [dataclasses.replace(ended) for ended in self._waiting.values()],
            [opened.channel for opened in self._channels.values()],
            now_ms=_BEGINNING_MS + self._now,
            notified_task=self._notify,
        )

    def _ask(self, wake: Wake, room: RoomSnapshot) -> tuple[list[Decision] | str, bytes]:
        """Return the answer, and the scratch that would be stored with it."""
        with FakeHost().settings(self._settings) as host:
            host.set_scratch(self._scratch)
            try:
                decided: list[Decision] | str = list(self._strategy().decide(wake, room.context))
            except Exception as error:
                decided = f"{type(error).__name__}: {error}"
            return decided, host.scratch()

    def _perform(self, wake: Wake, decisions: list[Decision]) -> None:
        """Perform the decisions. The earliest wait of an answer replaces all earlier waits."""
        until: int | None = None
        for decision in decisions:
            match decision:
                case Deliver():
                    self._deliver(wake, decision)
                case MoveToInbox(tasks):
                    for task in self._named(tasks):
                        self._move_to_inbox(task, "moved to the inbox")
                case Wait(name, timeout_ms):
                    if until is None or name is not None:
                        opened = self._channels.get(name) if name else None
                        is_idle = opened is not None and opened.channel.activity is Activity.IDLE
                        self._waits_for = (name, is_idle) if name and opened else None
                    ends = self._now + min(timeout_ms, _MAX_WAIT_MS)
                    until = ends if until is None else min(until, ends)
                case GiveUp(reason):
                    self._move_all_to_inbox(f"given up: {reason}")
        self._timer = self._timer if until is None else until
        if not self._waiting and not self._failed:
            self._timer = self._waits_for = None

    def _named(self, tasks: list[str]) -> list[str]:
        """Return those of the tasks that wait. Every other one is a breach."""
        found: list[str] = []
        for task in tasks:
            if task in self._waiting and task not in found:
                found.append(task)
            elif task in self._known:
                self._breaks(Guarantee.DECIDES_ONCE, f"it decides about {task} a second time")
            else:
                what = f"it decides about {task!r}, and there is no such task"
                self._breaks(Guarantee.ONLY_PENDING_RESULTS, what)
        return found

    def _deliver(self, wake: Wake, message: Deliver) -> None:
        tasks = self._named(message.tasks)
        if not tasks:
            return
        listed = ", ".join(tasks)
        if isinstance(wake, SendFailed) and set(tasks) & set(self._notified_of):
            what = f"after a failed message about {listed}, it sends it again at once"
            self._breaks(Guarantee.BACKS_OFF, what)
        preferred = self._snapshot().context.preferred_channel
        name = message.channel or (preferred.id if preferred else None)
        opened = self._channels.get(name) if name else None
        if opened is None or opened.channel.muted:
            why = "it speaks, and there is no channel to speak on"
            if message.channel:
                why = f"it speaks on {message.channel!r}, which is muted or was not offered"
            self._breaks(Guarantee.ONLY_ITS_CHANNELS, why)
            for task in tasks:
                self._move_to_inbox(task, why)
            return
        channel = opened.channel.id
        if opened.channel.activity is Activity.USER_SPEAKING:
            what = f"it speaks about {listed} on {channel!r}, whose user is speaking"
            self._breaks(Guarantee.NEVER_OVER_A_USER, what)
        elif opened.refusals == 0 and opened.says_ms > 0:
            queued = self._now if message.interrupt else max(opened.quiet_at or 0, self._now)
            self.becomes(channel, Activity.SPEAKING, queued + opened.says_ms)
        if opened.refusals > 0:
            opened.refusals -= 1
            self._rejected(tasks)
            return
        for task in tasks:
            self._leave(task)
        accepted = AcceptedMessage(self._now, tasks, channel, message.prompt, message.interrupt)
        self._report.delivered.append(accepted)

    def _rejected(self, tasks: list[str]) -> None:
        for task in tasks:
            self._waiting[task].attempts += 1
            if self._waiting[task].attempts >= MOST_ATTEMPTS:
                self._move_to_inbox(task, "tried as often as the host tries")
        self._failed = tasks
        self._wakes.insert(0, SendFailed("the channel refused it"))

    def _move_to_inbox(self, task: str, why: str) -> None:
        self._leave(task)
        self._report.inbox[task] = InboxEntry(self._now, why)

    def _move_all_to_inbox(self, why: str) -> None:
        for task in list(self._waiting):
            self._move_to_inbox(task, why)

    def _leave(self, task: str) -> None:
        del self._waiting[task]
        self._has_settled = True

    def _check_words(self, wake: Wake, room: RoomSnapshot, decided: list[Decision]) -> None:
        """Compare the words about a failed task with those about a completed one."""
        for ended in room.pending_results:
            said = _words(decided, ended.task_id)
            if ended.status is TaskStatus.COMPLETED or said is None:
                continue
            completed = dataclasses.replace(
                ended, status=TaskStatus.COMPLETED, output=ended.output or ended.error, error=None
            )
            others = [completed if item is ended else item for item in room.pending_results]
            other, _ = self._ask(wake, dataclasses.replace(room, pending_results=others))
            if not isinstance(other, str) and _words(other, ended.task_id) == said:
                what = f"what it says about {ended.task_id} would be the same had it completed"
                self._breaks(Guarantee.REPORTS_FAILURES, what)

    def _check_pace(self, wake: Wake) -> None:
        if not isinstance(wake, Timer):
            return
        is_near = self._last_timer is not None and self._now - self._last_timer < _BUSY_MS
        self._timers = self._timers + 1 if is_near and not self._has_settled else 0
        self._last_timer, self._has_settled = self._now, False
        if self._timers == _BUSY_TIMERS:
            what = f"it waits for less than {_BUSY_MS} ms again and again, without any result"
            self._breaks(Guarantee.NOT_BUSY, what)

    def _end(self, end: int) -> Report:
        self._now = end
        self._report.pending = list(self._waiting)
        if self._waiting:
            why = "though the script is long over"
            if self._timer is None:
                why = "and nothing will wake the strategy again"
            what = f"{', '.join(self._report.pending)} still waits, {why}"
            self._breaks(Guarantee.NOTHING_LOST, what)
        return self._report

    def _breaks(self, guarantee: Guarantee, what: str) -> None:
        self._report.breaches.append(Breach(guarantee, self._now, what, self._play.name))


def _words(decisions: list[Decision], task: str) -> str | None:
    """Return the strategy's own words about a task; `None` for the host's."""
    for decision in decisions:
        if isinstance(decision, Deliver) and task in decision.tasks:
            return decision.prompt
    return None
