import assert from "node:assert/strict";
import { test } from "node:test";

import { task } from "@conclave/sdk/testing";

import { recent } from "./app.js";

test("the first entry and the last ones stay", () => {
  assert.equal(recent.condense("size", task("Begin.")), undefined);
  const history = ["Begin.", ...Array(10).fill({ sender: "llm", content: "Go on." })];
  assert.deepEqual(recent.condense("size", task({ history })), { forget: [[1, 7]] });
});
