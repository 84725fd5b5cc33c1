// A native test passes its room as the context: `room(…)` of @conclave/sdk/testing.

import { absent } from "./absent.js";

export const [roomId, nowMs, pendingResults, channels, preferredChannel, notifiedTask] = Array(
  6,
).fill(absent("room(…)"));
