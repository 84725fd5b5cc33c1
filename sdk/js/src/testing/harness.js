// The test kit for delivery strategies. Like the host, it plays a script of rooms, clocks, channels
// and failures to a strategy, and reports the guarantees that the strategy breaks. It needs no
// waiting, since the clock is the script's.
//
// The script is played four times: unchanged, again with the same result, with everything of one
// moment joined into one wake, and with the first answer to each wake lost, as in a crash. All
// guarantees must hold in every play.

import { known } from "./known.js";
import { checkChannel, checkLine, scriptOf } from "./script.js";
import { SimulatedRoom } from "./simulated_room.js";

/** Returns the harness of a strategy: a room without channels, and an empty script. */
export function harness(strategy, parts = {}) {
  known("harness", parts, ["config", "script"]);
  return new Harness(strategy, parts);
}

const PLAYS = [
  { name: "with wakes of one moment joined", joins: true },
  { name: "with each answer lost once", losesAnswers: true },
];

class Harness {
  #strategy;
  #config;
  #script;
  #now = 0;

  constructor(strategy, { config, script = { channels: [], script: [] } }) {
    this.#strategy = strategy;
    this.#config = config;
    this.#script = scriptOf(script);
  }

  channel(id, kind = "text") {
    return this.#opens({ id, kind });
  }

  /** Adds a voice channel that is busy for `saysMs` with each message. */
  voice(id, saysMs) {
    return this.#opens({ id, kind: "voice", says_ms: saysMs });
  }

  /** Sets the time of the following lines, in milliseconds after the beginning. */
  at(ms) {
    this.#now = ms;
    return this;
  }

  completes(task, output) {
    return this.#happens({ do: "ends", task, output });
  }

  /** Ends a task with another status and an error; with `completed`, without an answer. */
  ends(task, status, error) {
    const reason = status === "completed" ? {} : { error };
    return this.#happens({ do: "ends", task, status, ...reason });
  }

  /** Completes tasks in the same moment: `NAME-0`, `NAME-1` and so on. */
  burst(name, count) {
    for (let number = 0; number < count; number += 1) this.completes(`${name}-${number}`, "done");
    return this;
  }

  activity(channel, activity) {
    return this.#happens({ do: "activity", channel, is: activity });
  }

  refuses(channel, times) {
    return this.#happens({ do: "refuses", channel, times });
  }

  mutes(channel) {
    return this.#happens({ do: "mutes", channel, muted: true });
  }

  unmutes(channel) {
    return this.#happens({ do: "mutes", channel, muted: false });
  }

  leaves(channel) {
    return this.#happens({ do: "leaves", channel });
  }

  /** Stops the host for this many milliseconds; the answer to the next wake is lost. */
  crashes(forMs) {
    return this.#happens({ do: "crashes", for_ms: forMs });
  }

  /** Plays the script, and returns the report of the first play, with the breaches of all. */
  run() {
    const report = this.#play({ name: "", asksTwice: true });
    report.expect(this.#script.expect);
    const again = this.#play({ name: "played again" });
    if (JSON.stringify(again.wakes) !== JSON.stringify(report.wakes)) {
      const what = "the same script, played again, was answered otherwise";
      report.breaks("deterministic", 0, what);
    }
    for (const play of PLAYS) report.breaches.push(...this.#play(play).breaches);
    return report;
  }

  #play(play) {
    return new SimulatedRoom(this.#strategy, this.#config, this.#script, play).play();
  }

  #opens(channel) {
    checkChannel(channel);
    this.#script.channels.push(channel);
    return this;
  }

  #happens(event) {
    const line = { at: this.#now, ...event };
    checkLine(line);
    this.#script.script.push(line);
    return this;
  }
}
