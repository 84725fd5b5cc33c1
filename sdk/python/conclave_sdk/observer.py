"""An observer: it receives the events of a run after they are durable, and decides nothing.

Each event arrives at least once, and those of one room in order. An exception makes the host call
again with the same events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from conclave_sdk.types import JsonObject


@dataclass
class ObservedEvent:
    """An event of a run. `time` is in milliseconds since 1970, `kind` such as `task-ended`."""

    room: str
    seq: int
    index: int
    time: int
    kind: str
    task: str | None = None
    details: JsonObject = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The idempotency key, such as `3f2a91c0:17.0`: the same each time the event arrives."""
        return f"{self.room}:{self.seq}.{self.index}"


class Observer:
    """An observer; a subclass is exported."""

    def observe(self, events: list[ObservedEvent]) -> None:
        """Take events: at least one, and all of one room, in order.

        After `Unavailable` the host calls again no sooner than the error asks for, and after
        `Denied` no more in this run.
        """
        raise NotImplementedError
