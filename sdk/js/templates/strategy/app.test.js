import assert from "node:assert/strict";
import { test } from "node:test";

import { delivery } from "@conclave/sdk";
import { room } from "@conclave/sdk/testing";

import { whenIdle } from "./app.js";

const ended = { tag: "ended", val: "task-1" };
const phone = (activity) =>
  room({
    pendingResults: ["task-1"],
    channels: [{ id: "phone", kind: "voice", activity }],
  });

test("it waits for the user, and reports when the phone is idle", () => {
  assert.deepEqual(whenIdle.decide(ended, phone("user-speaking")), [
    delivery.wait(10_000, "phone"),
  ]);
  assert.deepEqual(whenIdle.decide(ended, phone("idle")), [delivery.deliver(["task-1"])]);
});

test("without a channel the result waits in the inbox", () => {
  const decisions = whenIdle.decide(ended, room({ pendingResults: ["task-1"] }));
  assert.deepEqual(decisions, [delivery.moveToInbox(["task-1"])]);
});

test("a result that was not accepted is tried again after a pause", () => {
  const failed = room({
    pendingResults: [{ taskId: "task-1", attempts: 2 }],
    channels: [{ id: "phone" }],
  });
  const decisions = whenIdle.decide({ tag: "send-failed", val: "busy" }, failed);
  assert.deepEqual(decisions, [delivery.wait(2_000)]);
});
