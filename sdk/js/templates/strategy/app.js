// <NAME>: reports results of background tasks when the channel is idle.

import { delivery, strategy } from "@conclave/sdk";

export const whenIdle = strategy({
  decide(wake, context) {
    const pending = context.pendingResults;
    const channel = context.preferredChannel;
    // Without a channel, the agent reads the results in its next turn.
    if (!channel) return [delivery.moveToInbox(pending.map(({ taskId }) => taskId))];
    if (channel.activity !== "idle") return [delivery.wait(10_000, channel.id)];
    // Results that were not accepted are tried again after a pause.
    const { now, rest } = delivery.due(wake, pending);
    return now.length > 0 ? [delivery.deliver(now), ...rest] : rest;
  },
});
