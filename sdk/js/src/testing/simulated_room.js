// A simulated host: it wakes the strategy, checks and executes its decisions, and gives each result
// one end. It keeps one timer, one awaited channel, and the scratch.

import { decisionsOf } from "../decisions.js";
import { MOST_ATTEMPTS } from "../delivery.js";
import { withHost } from "../native/current.js";
import { Report } from "./report.js";
import { room as roomOf } from "./room.js";
import { endOf } from "./script.js";

/**
 * The clock time of the script's beginning. It is not 0, to expose a strategy that uses 0 for
 * "never".
 */
const BEGINNING_MS = 1_760_000_000_000;
/** The longest wait of a strategy, as in the host. */
const MAX_WAIT_MS = 60 * 60 * 1_000;
/** Milliseconds between timers below which a series without any action counts as a busy loop. */
const BUSY_MS = 100;
const BUSY_TIMERS = 20;
/** Wakes of one play. A strategy that takes more never ends. */
const MAX_WAKES = 50_000;
/** The order of wakes that are joined: the most informative one stands for all. */
const WEIGHTS = { ended: 0, timer: 1, "channel-idle": 2, "send-failed": 3 };

export class SimulatedRoom {
  #strategy;
  #config;
  #script;
  #play;
  #now = 0;
  #channels;
  /** Every result by its task; those that wait, oldest first. */
  #known = new Set();
  #waiting = new Map();
  #timer;
  /** The awaited channel, and whether it was idle when last checked. */
  #waitsFor;
  #scratch = new Uint8Array();
  #wakes = [];
  #crashMs;
  /** The results of a failed message until the strategy is notified, and then those of the notice. */
  #failed = [];
  #notifiedOf = [];
  #busy = { timers: 0, hasSettled: false };
  #report = new Report();

  constructor(strategy, config, script, play) {
    this.#strategy = strategy;
    this.#config = config;
    this.#script = script;
    this.#play = play;
    this.#channels = new Map(
      script.channels.map(({ id, kind, says_ms: saysMs = 0 }) => [
        id,
        { channel: { id, kind, activity: "idle", muted: false }, saysMs, refusals: 0 },
      ]),
    );
  }

  play() {
    const end = endOf(this.#script);
    const lines = this.#script.script.toSorted((a, b) => (a.at ?? 0) - (b.at ?? 0));
    for (;;) {
      const quiet = [...this.#channels.values()].map(({ quietAt }) => quietAt);
      const times = [lines[0] && (lines[0].at ?? 0), ...quiet, this.#timer];
      const next = Math.min(...times.filter((time) => time !== undefined));
      if (next > end) break;
      this.#now = Math.max(this.#now, next);
      // The time may have jumped over several lines, which still happen in their order.
      while (lines.length > 0 && (lines[0].at ?? 0) <= next) {
        this.#playEvent(lines.shift());
        if (!this.#play.joins) this.#wakeAll();
      }
      this.#fallSilent(next);
      if (this.#timer !== undefined && this.#timer <= next) {
        this.#timer = undefined;
        this.#wakes.push({ tag: "timer" });
      }
      if (this.#play.joins) this.#joinWakes();
      this.#wakeAll();
      if (this.#report.wakes.length >= MAX_WAKES) {
        this.#breaks("not-busy", `it was woken ${MAX_WAKES} times, and is not done`);
        break;
      }
    }
    return this.#end(end);
  }

  #playEvent(line) {
    const open = this.#channels.get(line.channel);
    switch (line.do) {
      case "ends":
        return this.#ends(line);
      case "activity":
        return this.#becomes(line.channel, line.is);
      case "refuses":
        if (open) open.refusals = line.times;
        return undefined;
      case "mutes":
        if (open) open.channel = { ...open.channel, muted: line.muted };
        return undefined;
      case "leaves":
        this.#channels.delete(line.channel);
        return undefined;
      default:
        this.#crashMs = line.for_ms;
        return undefined;
    }
  }

  #ends({ task, status = "completed", output, error }) {
    this.#known.add(task);
    this.#waiting.set(task, { taskId: task, status, output, error, attempts: 0 });
    this.#wakes.push({ tag: "ended", val: task });
  }

  #becomes(id, activity, quietAt) {
    const open = this.#channels.get(id);
    if (!open) return;
    open.quietAt = quietAt;
    open.channel = { ...open.channel, activity };
    if (this.#waitsFor?.id !== id) return;
    const { wasIdle } = this.#waitsFor;
    this.#waitsFor.wasIdle = activity === "idle";
    if (activity === "idle" && !wasIdle) this.#wakes.push({ tag: "channel-idle", val: id });
  }

  #fallSilent(now) {
    for (const [id, { quietAt }] of this.#channels) {
      if (quietAt !== undefined && quietAt <= now) this.#becomes(id, "idle");
    }
  }

  /** Of equal wakes the last one stands for all. */
  #joinWakes() {
    const heaviest = Math.max(...this.#wakes.map(({ tag }) => WEIGHTS[tag]));
    this.#wakes = this.#wakes.filter(({ tag }) => WEIGHTS[tag] === heaviest).slice(-1);
  }

  #wakeAll() {
    while (this.#wakes.length > 0 && this.#report.wakes.length < MAX_WAKES) {
      const wake = this.#wakes.shift();
      this.#notifiedOf = this.#failed;
      this.#failed = [];
      if (this.#waiting.size > 0) this.#wake(wake);
    }
  }

  #wake(wake) {
    if (this.#play.losesAnswers || this.#crashMs !== undefined) {
      // The host stopped before the answer was recorded: it has no effect, and is asked for again
      // afterwards.
      this.#ask(wake, this.#snapshot());
      this.#now += this.#crashMs ?? 1_000;
      this.#crashMs = undefined;
    }
    const isAwaited = wake.tag === "channel-idle" && this.#waitsFor?.id === wake.val;
    if (wake.tag === "timer" || isAwaited) this.#waitsFor = undefined;
    const room = this.#snapshot();
    const answer = this.#ask(wake, room);
    if (this.#play.asksTwice && textOf(this.#ask(wake, room)) !== textOf(answer)) {
      const what = `asked twice for ${named(wake)}, it answered otherwise the second time`;
      this.#breaks("deterministic", what);
    }
    const { decided, error, scratch } = answer;
    this.#report.wakes.push({
      at: this.#now,
      wake,
      pending: this.#waiting.size,
      decided: decided ?? error,
    });
    if (decided === undefined) {
      this.#breaks("answers", `woken by ${named(wake)}, it failed: ${error}`);
      this.#moveAllToInbox("the strategy failed");
    } else {
      this.#scratch = scratch;
      this.#checkWords(wake, room, decided);
      this.#perform(wake, decided);
    }
    this.#checkPace(wake);
  }

  #snapshot() {
    return {
      roomId: "room",
      nowMs: BEGINNING_MS + this.#now,
      pendingResults: [...this.#waiting.values()].map((ended) => ({ ...ended })),
      channels: [...this.#channels.values()].map(({ channel }) => channel),
      notifiedTask: this.#script.notify ?? "desk",
    };
  }

  /** Returns the decisions or the error, and the scratch that would be stored with them. */
  #ask(wake, room) {
    const host = {
      grants: { files: { contents: new Map(), folders: [] } },
      config: this.#config,
      scratch: this.#scratch,
      logs: [],
      progress: [],
    };
    try {
      const decided = withHost(host, () => decisionsOf(this.#strategy, wake, roomOf(room)));
      return { decided, scratch: host.scratch };
    } catch (error) {
      return { error: String(error), scratch: host.scratch };
    }
  }

  /** Executes decisions. The earliest wait replaces all earlier waits; without one they stay. */
  #perform(wake, decisions) {
    let until;
    for (const { tag, val } of decisions) {
      if (tag === "deliver") this.#deliver(wake, val);
      else if (tag === "move-to-inbox") {
        for (const task of this.#named(val)) this.#moveToInbox(task, "moved to the inbox");
      } else if (tag === "wait") {
        const { channel, timeoutMs } = val;
        if (until === undefined || channel !== undefined) this.#waitsFor = this.#awaited(channel);
        until = Math.min(until ?? Infinity, this.#now + Math.min(timeoutMs, MAX_WAIT_MS));
      } else this.#moveAllToInbox(`given up: ${val}`);
    }
    this.#timer = until ?? this.#timer;
    if (this.#waiting.size === 0 && this.#failed.length === 0) {
      this.#timer = undefined;
      this.#waitsFor = undefined;
    }
  }

  #awaited(id) {
    const open = this.#channels.get(id);
    return open && { id, wasIdle: open.channel.activity === "idle" };
  }

  /** Returns those of the tasks that wait. Every other one is a breach. */
  #named(tasks) {
    const found = new Set();
    for (const task of tasks) {
      if (this.#waiting.has(task) && !found.has(task)) found.add(task);
      else if (this.#known.has(task)) {
        this.#breaks("decides-once", `it decides about ${task} a second time`);
      } else {
        const what = `it decides about ${JSON.stringify(task)}, and there is no such task`;
        this.#breaks("only-pending-results", what);
      }
    }
    return [...found];
  }

  #deliver(wake, { tasks, channel, prompt, interrupt = false }) {
    const ids = this.#named(tasks);
    if (ids.length === 0) return;
    const listed = ids.join(", ");
    const repeats = ids.some((task) => this.#notifiedOf.includes(task));
    if (wake.tag === "send-failed" && repeats) {
      const what = `after a failed message about ${listed}, it sends it again at once`;
      this.#breaks("backs-off", what);
    }
    const wanted = channel ?? roomOf(this.#snapshot()).preferredChannel?.id;
    const open = this.#channels.get(wanted);
    if (!open || open.channel.muted) {
      const why =
        channel === undefined
          ? "it speaks, and there is no channel to speak on"
          : `it speaks on ${JSON.stringify(channel)}, which is muted or was not offered`;
      this.#breaks("only-its-channels", why);
      for (const task of ids) this.#moveToInbox(task, why);
      return;
    }
    this.#speaks(wanted, open, listed, interrupt);
    if (open.refusals > 0) {
      open.refusals -= 1;
      this.#rejected(ids);
      return;
    }
    for (const task of ids) this.#leave(task);
    this.#report.delivered.push({
      at: this.#now,
      tasks: ids,
      channel: wanted,
      prompt,
      interrupted: interrupt,
    });
  }

  /** Makes the channel busy for as long as it says a message. */
  #speaks(id, open, listed, interrupt) {
    if (open.channel.activity === "user-speaking") {
      const what = `it speaks about ${listed} on ${JSON.stringify(id)}, whose user is speaking`;
      this.#breaks("never-over-a-user", what);
    } else if (open.refusals === 0 && open.saysMs > 0) {
      const begins = interrupt ? this.#now : Math.max(open.quietAt ?? 0, this.#now);
      this.#becomes(id, "speaking", begins + open.saysMs);
    }
  }

  #rejected(tasks) {
    for (const task of tasks) {
      const ended = this.#waiting.get(task);
      ended.attempts += 1;
      if (ended.attempts >= MOST_ATTEMPTS) {
        this.#moveToInbox(task, "tried as often as the host tries");
      }
    }
    this.#failed = tasks;
    this.#wakes.unshift({ tag: "send-failed", val: "the channel refused it" });
  }

  #moveToInbox(task, why) {
    this.#leave(task);
    this.#report.inbox[task] = { at: this.#now, why };
  }

  #moveAllToInbox(why) {
    for (const task of [...this.#waiting.keys()]) this.#moveToInbox(task, why);
  }

  #leave(task) {
    this.#waiting.delete(task);
    this.#busy.hasSettled = true;
  }

  /** Compares the words about a failed task with those about a completed one in the same room. */
  #checkWords(wake, room, decided) {
    for (const ended of room.pendingResults) {
      const said = wordsAbout(decided, ended.taskId);
      if (ended.status === "completed" || said === undefined) continue;
      const output = ended.output ?? ended.error;
      const completed = { ...ended, status: "completed", output, error: undefined };
      const pendingResults = room.pendingResults.map((one) => (one === ended ? completed : one));
      const other = this.#ask(wake, { ...room, pendingResults });
      if (wordsAbout(other.decided ?? [], ended.taskId) === said) {
        const what = `what it says about ${ended.taskId} would be the same had it completed`;
        this.#breaks("reports-failures", what);
      }
    }
  }

  #checkPace({ tag }) {
    if (tag !== "timer") return;
    const { last, timers, hasSettled } = this.#busy;
    const isNear = last !== undefined && this.#now - last < BUSY_MS && !hasSettled;
    this.#busy = { last: this.#now, timers: isNear ? timers + 1 : 0, hasSettled: false };
    if (this.#busy.timers === BUSY_TIMERS) {
      const what = `it waits for less than ${BUSY_MS} ms again and again, and nothing comes of it`;
      this.#breaks("not-busy", what);
    }
  }

  #end(end) {
    this.#now = end;
    const waiting = [...this.#waiting.keys()];
    if (waiting.length > 0) {
      const others = waiting.length > 1 ? ` (and ${waiting.length - 1} more)` : "";
      const why =
        this.#timer === undefined
          ? "and nothing will wake the strategy again"
          : "though the script is long over";
      this.#breaks("nothing-lost", `${waiting[0]}${others} still waits, ${why}`);
    }
    this.#report.pending = waiting;
    return this.#report;
  }

  #breaks(guarantee, what) {
    this.#report.breaks(guarantee, this.#now, what, this.#play.name);
  }
}

const named = ({ tag, val }) => (val === undefined ? tag : `${tag} ${JSON.stringify(val)}`);

const textOf = ({ scratch, ...answer }) => JSON.stringify([answer, [...scratch]]);

/** Returns the strategy's own words about a task; `undefined` for the host's. */
function wordsAbout(decisions, task) {
  const isAbout = ({ tag, val }) => tag === "deliver" && val.tasks.includes(task);
  return decisions.find(isAbout)?.val.prompt;
}
