"""<NAME>: reports results of background tasks when the channel is idle."""

from conclave_sdk import DeliveryStrategy
from conclave_sdk.delivery import (
    Activity,
    Context,
    Decision,
    Wake,
    deliver,
    due,
    move_to_inbox,
    wait_for,
)


class WhenIdle(DeliveryStrategy):
    """Waits for the channel, and tries again after a pause if a message was not accepted."""

    def decide(self, wake: Wake, context: Context) -> list[Decision]:
        """Return the decisions, in order."""
        channel = context.preferred_channel
        if channel is None:
            # Without a channel, the agent reads the results in its next turn.
            return [move_to_inbox(context.pending_results)]
        if channel.activity is not Activity.IDLE:
            return [wait_for(channel, 10_000)]
        ready = due(wake, context.pending_results)
        return [*([deliver(ready.now)] if ready.now else []), *ready.rest]
