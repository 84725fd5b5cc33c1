// The result of a script that the harness played, with the broken guarantees.

/** The guarantees of a strategy to the users that it speaks to. */
export const GUARANTEES = {
  answers: "answers each wake",
  "nothing-lost": "loses no result",
  "decides-once": "decides once about each result",
  "only-pending-results": "decides only about pending results",
  "only-its-channels": "speaks only on open channels that it was offered",
  "never-over-a-user": "never speaks over a user",
  "backs-off": "waits after a failed message",
  "not-busy": "does not wait in a loop",
  "reports-failures": "reports a failure as a failure",
  deterministic: "decides the same in the same room",
  "as-expected": "does what the script expects",
};

/** Breaches that are listed, since a wrong strategy repeats its mistakes in every wake. */
const SHOWN = 10;

/** The guarantees that a strategy broke, as an error. */
class BrokenGuarantees extends Error {
  constructor(breaches) {
    const lines = breaches.slice(0, SHOWN).map(({ guarantee, at, what, play }) => {
      const where = play === "" ? "" : ` (${play})`;
      return `${guarantee} (${GUARANTEES[guarantee]}), at ${at} ms${where}: ${what}`;
    });
    if (breaches.length > SHOWN) lines.push(`… and ${breaches.length - SHOWN} more`);
    super(lines.join("\n"));
    this.name = "BrokenGuarantees";
    this.breaches = breaches;
  }
}

export class Report {
  /** Accepted messages, in order. */
  delivered = [];
  /** The inbox, by task. */
  inbox = {};
  /** Results that are still pending at the end. */
  pending = [];
  /** All wakes, with the decisions about them. */
  wakes = [];
  breaches = [];

  /** Throws unless all guarantees but these held. */
  check({ but = [] } = {}) {
    const unknown = but.find((name) => !Object.hasOwn(GUARANTEES, name));
    if (unknown !== undefined) throw new TypeError(`there is no guarantee ${unknown}`);
    const broken = this.breaches.filter(({ guarantee }) => !but.includes(guarantee));
    if (broken.length > 0) throw new BrokenGuarantees(broken);
  }

  /** Returns the time at which a result was delivered; `undefined` if it was not. */
  deliveredAt(task) {
    return this.delivered.find(({ tasks }) => tasks.includes(task))?.at;
  }

  breaks(guarantee, at, what, play = "") {
    this.breaches.push({ guarantee, at, what, play });
  }

  /** Compares the report with what the script expects. */
  expect({ delivered, inbox } = {}) {
    const compare = (name, expected, came) => {
      const [wanted, found] = [expected, came].map((one) => JSON.stringify(one));
      if (expected === undefined || wanted === found) return;
      this.breaks("as-expected", 0, `${name} should be ${wanted}, and was ${found}`);
    };
    compare(
      "delivered",
      delivered,
      this.delivered.map(({ at, tasks }) => [at, tasks]),
    );
    compare("inbox", inbox, Object.keys(this.inbox).sort());
  }
}
