// Decisions of delivery strategies, and the results that are due.

/** Reports these results, on the preferred channel and in the host's words by default. */
export const deliver = (tasks, { channel, prompt, interrupt = false } = {}) => ({
  tag: "deliver",
  val: { tasks: [...tasks], channel, prompt, interrupt },
});

export const moveToInbox = (tasks) => ({ tag: "move-to-inbox", val: [...tasks] });

/** Asks again after `timeoutMs`, or as soon as `channel` is idle. */
export const wait = (timeoutMs, channel) => ({ tag: "wait", val: { channel, timeoutMs } });

export const giveUp = (reason) => ({ tag: "give-up", val: reason });

/** Returns the decisions with this prompt in every message without one. */
export const worded = (decisions, prompt) =>
  decisions.map((decision) =>
    decision.tag === "deliver" && prompt && (decision.val.prompt ?? undefined) === undefined
      ? { ...decision, val: { ...decision.val, prompt } }
      : decision,
  );

/**
 * The waiting time of the oldest result, kept in the scratch, since an instance lives for one call.
 * When the oldest one is delivered, the next one's time begins.
 */
export class Waited {
  constructor({ oldest = "", sinceMs = 0 } = {}) {
    this.oldest = oldest;
    this.sinceMs = sinceMs;
  }

  /** Returns the milliseconds for which the first result has been seen to wait; 0 without one. */
  ms([oldest], nowMs) {
    if (oldest === undefined) Object.assign(this, { oldest: "", sinceMs: 0 });
    else if (oldest.taskId !== this.oldest) {
      Object.assign(this, { oldest: oldest.taskId, sinceMs: nowMs });
    }
    return oldest === undefined ? 0 : Math.max(0, nowMs - this.sinceMs);
  }
}

/** Attempts to report one result; the host makes no more. */
export const MOST_ATTEMPTS = 4;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

/** Returns the pause after this many failed deliveries; `undefined` if no attempt is left. */
export function backoffMs(attempts) {
  if (attempts >= MOST_ATTEMPTS) return undefined;
  return Math.min(FIRST_PAUSE_MS * 2 ** Math.max(0, attempts - 1), LONGEST_PAUSE_MS);
}

/** Splits the waiting results by their attempts: `now` are ids, `rest` are decisions. */
export function due(wake, waiting) {
  const isTime = wake.tag === "timer" || wake.tag === "channel-idle";
  const over = waiting.filter(({ attempts }) => attempts >= MOST_ATTEMPTS);
  const now = waiting.filter(
    ({ attempts }) => attempts === 0 || (isTime && attempts < MOST_ATTEMPTS),
  );
  const rest = over.length > 0 ? [moveToInbox(over.map(({ taskId }) => taskId))] : [];
  // After another wake the wait of the earlier failure holds, and a new one would postpone it.
  if (wake.tag === "send-failed") {
    const pauses = waiting
      .filter(({ attempts }) => attempts > 0)
      .map(({ attempts }) => backoffMs(attempts))
      .filter((pause) => pause !== undefined);
    if (pauses.length > 0) rest.push(wait(Math.min(...pauses)));
  }
  return { now: now.map(({ taskId }) => taskId), rest };
}
