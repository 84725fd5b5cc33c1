import assert from "node:assert/strict";
import { test } from "node:test";

import { count } from "./app.js";

test("short words can be left out", () => {
  assert.equal(count.call({ text: "a fresh sandbox per call" }).content, "5");
  assert.equal(count.call({ text: "a fresh sandbox per call", shortest: 2 }).content, "4");
  assert.throws(() => count.call({ text: "a", shortest: 0 }), /shortest: must be at least 1/);
});
