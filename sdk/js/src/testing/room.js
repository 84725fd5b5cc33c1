// The room that a strategy reads in a native test.

import { Context } from "../context.js";
import { json } from "../wire.js";
import { known } from "./known.js";

const ROOM = ["roomId", "nowMs", "pendingResults", "channels", "preferredChannel", "notifiedTask"];

/** Returns a strategy's view of a room with these parts. */
export function room(parts = {}) {
  known("room", parts, ROOM);
  const channels = (parts.channels ?? []).map(channelOf);
  return new Context({
    roomId: () => parts.roomId ?? "room-1",
    nowMs: () => parts.nowMs ?? 1_760_000_000_000,
    pendingResults: () => (parts.pendingResults ?? []).map(endedOf),
    channels: () => channels,
    preferredChannel: () => parts.preferredChannel ?? preferred(channels)?.id,
    notifiedTask: () => parts.notifiedTask,
  });
}

const channelOf = ({ id, kind = "text", activity = "idle", muted = false }) => ({
  id,
  kind,
  activity,
  muted,
});

/** As the host does: voice first, then any other, but never a muted one or an agent's. */
function preferred(channels) {
  const open = channels.filter(({ muted, kind }) => !muted && kind !== "agent");
  return open.find(({ kind }) => kind === "voice") ?? open[0];
}

function endedOf(result) {
  const ended = typeof result === "string" ? { taskId: result } : result;
  return {
    worker: "worker",
    description: "Find out.",
    status: "completed",
    output: undefined,
    error: undefined,
    durationMs: 1_000,
    attempts: 0,
    ...ended,
    metadata: json(ended.metadata ?? {}),
  };
}
