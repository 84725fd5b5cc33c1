import assert from "node:assert/strict";
import { test } from "node:test";

import { harness } from "@conclave/sdk/testing";

import { whenIdle } from "./app.js";

test("it waits for the user and for the phone", () => {
  const report = harness(whenIdle)
    .voice("phone", 2_000) // busy for 2 s with each message
    .activity("phone", "user-speaking")
    .at(300)
    .completes("task-1", "48 metres")
    .at(900)
    .refuses("phone", 1) // the next message is not accepted
    .at(5_000)
    .activity("phone", "idle")
    .run();
  report.check();
  assert.equal(report.deliveredAt("task-1"), 6_000);
});

test("without a channel the result waits in the inbox", () => {
  const report = harness(whenIdle).completes("task-1", "48 metres").run();
  report.check();
  assert.deepEqual(Object.keys(report.inbox), ["task-1"]);
});
