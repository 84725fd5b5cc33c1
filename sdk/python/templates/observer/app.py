"""<NAME>: logs the tasks of a run that end."""

from conclave_sdk import Observer, log
from conclave_sdk.observer import ObservedEvent


class Diary(Observer):
    """Writes a line for each task that ends."""

    def observe(self, events: list[ObservedEvent]) -> None:
        """Take events. An exception makes the host call again with the same ones."""
        for event in events:
            if event.kind == "task-ended" and event.task:
                # The same event can arrive again after a crash; its key identifies it.
                log.info(f"{event.task} ended ({event.key})")
