import assert from "node:assert/strict";
import { test } from "node:test";

import { finish } from "@conclave/sdk";
import { fakeHost, task } from "@conclave/sdk/testing";

import { desk } from "./app.js";

test("a model is asked only if there is a question", () => {
  const host = fakeHost({ replies: ["In 1844."] });
  const step = (text) => host.run(() => desk.step(task(text)));
  assert.deepEqual(step("  "), finish("There is no question."));
  assert.deepEqual(step("When was it lit?"), finish("In 1844."));
});
