// <NAME>: logs the tasks of a run that end.

import { eventKey, log, observer } from "@conclave/sdk";

export const diary = observer({
  // An exception makes the host call again with the same events.
  observe(events) {
    for (const event of events) {
      // The same event can arrive again after a crash; its key tells a reader.
      if (event.kind === "task-ended") log.info(`${event.task} ended (${eventKey(event)})`);
    }
  },
});
