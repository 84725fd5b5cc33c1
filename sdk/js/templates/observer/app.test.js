import assert from "node:assert/strict";
import { test } from "node:test";

import { event, fakeHost } from "@conclave/sdk/testing";

import { diary } from "./app.js";

test("only ends of tasks are logged", () => {
  const host = fakeHost();
  host.run(() => diary.observe([event("task-started"), event("task-ended", { task: "desk" })]));
  assert.deepEqual(host.logs, [{ level: "info", message: "desk ended (3f2a91c0:17.0)" }]);
});
