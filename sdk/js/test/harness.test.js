// Tests that the harness finds mistakes: for each guarantee a strategy that breaks it, and a
// strategy that keeps them all.

import assert from "node:assert/strict";
import { test } from "node:test";

import { config, delivery, scratch, strategy } from "@conclave/sdk";
import { harness } from "@conclave/sdk/testing";

const { deliver, due, giveUp, moveToInbox, wait } = delivery;
const ids = ({ pendingResults }) => pendingResults.map(({ taskId }) => taskId);
const deciding = (decide) => strategy({ decide });

/** Speaks about all due results when no user is speaking. */
const polite = deciding((wake, context) => {
  const channel = context.preferredChannel;
  if (!channel) return [moveToInbox(ids(context))];
  if (channel.activity !== "idle") return [wait(10_000, channel.id)];
  const { now, rest } = due(wake, context.pendingResults);
  return now.length > 0 ? [deliver(now), ...rest] : rest;
});

/** A phone that refuses messages for a moment, a user who speaks, and a failure among the results. */
const phone = (one) =>
  harness(one)
    .voice("phone", 2_000)
    .at(0)
    .completes("a", "48 m")
    .at(500)
    .ends("b", "failed", "no disk")
    .at(2_500)
    .activity("phone", "user-speaking")
    .at(3_000)
    .completes("c", "1844")
    .refuses("phone", 2)
    .at(9_000)
    .activity("phone", "idle");

/** Returns the broken guarantees of a report. */
function broken(report) {
  try {
    report.check();
    return [];
  } catch (error) {
    assert.equal(error.name, "BrokenGuarantees", error.stack);
    return [...new Set(error.breaches.map(({ guarantee }) => guarantee))];
  }
}

test("a good strategy breaks nothing", () => {
  const report = phone(polite).run();
  report.check();
  assert.deepEqual(
    report.delivered.map(({ at, tasks }) => [at, tasks.join("+")]),
    [
      [0, "a"],
      [2_000, "b"],
      [12_000, "c"],
    ],
    "two refusals: one second, then two",
  );
  assert.deepEqual([report.inbox, report.pending], [{}, []]);
});

test("a thousand results are two messages", () => {
  const report = harness(polite).voice("phone", 2_000).burst("task", 1_000).run();
  report.check();
  assert.equal(report.delivered.length, 2);
});

test("after four refusals a result is in the inbox", () => {
  const report = harness(polite).voice("phone", 0).refuses("phone", 9).completes("a", "x").run();
  report.check();
  assert.equal(report.inbox.a.why, "tried as often as the host tries");
  const timers = report.wakes.filter(({ wake }) => wake.tag === "timer").map(({ at }) => at);
  assert.deepEqual(timers, [1_000, 3_000, 7_000]);
});

test("a crash asks again, and the scratch is that of the answers that count", () => {
  const crashed = harness(polite).voice("phone", 0).at(10).crashes(500).completes("a", "x").run();
  crashed.check();
  assert.equal(crashed.deliveredAt("a"), 510);
  const counting = deciding((wake, context) => {
    const count = (scratch.get() ?? 0) + 1;
    scratch.set(count);
    return count === 3 ? [deliver(ids(context))] : [wait(1_000)];
  });
  const report = harness(counting).channel("terminal").completes("a", "x").run();
  report.check();
  assert.equal(report.deliveredAt("a"), 2_000);
});

test("channels are muted and leave, and a wait for an idle channel ends with it", () => {
  const report = harness(polite)
    .channel("terminal")
    .mutes("terminal")
    .completes("a", "x")
    .at(10)
    .unmutes("terminal")
    .completes("b", "x")
    .at(20)
    .activity("terminal", "generating")
    .completes("c", "x")
    .at(30)
    .leaves("terminal")
    .run();
  report.check();
  assert.deepEqual(Object.keys(report.inbox), ["a", "c"]);
  assert.equal(report.deliveredAt("b"), 10);
});

let calls = 0;
const BREAKERS = [
  ["answers", () => [][1].none],
  ["answers", () => "no list"],
  ["nothing-lost", () => []],
  ["decides-once", (_, context) => [deliver(ids(context)), deliver(["a"])]],
  ["only-pending-results", () => [deliver(["z"]), giveUp("")]],
  ["only-its-channels", () => [deliver(["a"], { channel: "other" })]],
  ["never-over-a-user", (_, context) => [deliver(ids(context))]],
  ["backs-off", (_, context) => [deliver(ids(context))]],
  [
    "not-busy",
    (_, context) => (context.nowMs < 1_760_000_001_000 ? [wait(5)] : [deliver(ids(context))]),
  ],
  ["reports-failures", (_, context) => [deliver(ids(context), { prompt: "It is ready." })]],
  ["deterministic", (_, context) => [deliver(ids(context), { prompt: String((calls += 1)) })]],
];

for (const [guarantee, decide] of BREAKERS) {
  test(`a strategy that breaks a guarantee is named: ${guarantee}`, () => {
    const played = harness(deciding(decide)).channel("terminal");
    if (guarantee === "never-over-a-user") played.activity("terminal", "user-speaking");
    if (guarantee === "backs-off") played.refuses("terminal", 1);
    if (guarantee === "reports-failures") played.ends("a", "failed", "no disk");
    else played.completes("a", "x");
    const report = played.run();
    assert.deepEqual(broken(report), [guarantee]);
    assert.throws(() => report.check(), new RegExp(`^BrokenGuarantees: ${guarantee} \\(`));
    report.check({ but: [guarantee] });
  });
}

test("wakes of one moment are joined in one play", () => {
  /** Counts on a wake for each result. */
  const hasty = deciding(({ tag, val }) => (tag === "ended" ? [deliver([val])] : []));
  const report = harness(hasty).channel("terminal").completes("a", "x").completes("b", "y").run();
  assert.throws(() => report.check(), /\(with wakes of one moment joined\)/);
  assert.deepEqual(broken(report), ["nothing-lost"]);
  assert.throws(() => report.check({ but: ["nothing"] }), TypeError);
});

test("a script is data, and an invalid one is refused with the valid words", () => {
  const data = {
    channels: [{ id: "phone", kind: "voice", says_ms: 2_000 }],
    script: [
      { at: 9_000, do: "activity", channel: "phone", is: "idle" },
      { at: 0, do: "ends", task: "a", output: "48 m" },
      { at: 500, do: "ends", task: "b", status: "failed", error: "no disk" },
      { at: 600, do: "activity", channel: "phone", is: "user-speaking" },
    ],
    expect: {
      delivered: [
        [0, ["a"]],
        [9_000, ["b"]],
      ],
      inbox: [],
    },
  };
  harness(polite, { script: data }).run().check();
  const wrong = { ...data, expect: { delivered: [[1, ["a"]]], inbox: ["b"] } };
  const report = harness(polite, { script: wrong }).run();
  assert.deepEqual(broken(report), ["as-expected"]);
  assert.equal(report.breaches.length, 2);
  for (const [script, said] of [
    [{ channels: [], script: [], tempo: 1 }, /no word `tempo`/],
    [{ channels: [{ id: "a", kind: "smoke" }], script: [] }, /"smoke" is no kind of channel/],
    [{ channels: [], script: [{ at: 1, do: "dances" }] }, /"dances" is no event/],
    [{ channels: [], script: [{ do: "activity", channel: "a", is: "gone" }] }, /no activity/],
    [{ channels: [], script: [{ do: "ends", task: "a", status: "won" }] }, /no status/],
    [{}, /no `channels`/],
  ]) {
    assert.throws(() => harness(polite, { script }), said);
  }
});

test("a strategy reads its settings", () => {
  const settled = deciding((_, context) => [
    deliver(ids(context), { channel: config.get().channel }),
  ]);
  const report = harness(settled, { config: { channel: "b" } })
    .channel("a")
    .channel("b")
    .completes("t", "x")
    .run();
  report.check();
  assert.equal(report.delivered[0].channel, "b");
});
