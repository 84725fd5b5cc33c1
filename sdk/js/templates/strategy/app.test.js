import assert from "node:assert/strict";
import { test } from "node:test";

import { delivery } from "@conclave/sdk";
import { room } from "@conclave/sdk/testing";

import { whenIdle } from "./app.js";

test("it waits while the user speaks", () => {
  const decided = (activity) => {
    const phone = { id: "phone", kind: "voice", activity };
    const context = room({ pendingResults: ["task-1"], channels: [phone] });
    return whenIdle.decide({ tag: "ended", val: "task-1" }, context);
  };
  assert.deepEqual(decided("user-speaking"), [delivery.wait(10_000, "phone")]);
  assert.deepEqual(decided("idle"), [delivery.deliver(["task-1"])]);
});
