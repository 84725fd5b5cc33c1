import assert from "node:assert/strict";
import { test } from "node:test";

import { allow, block } from "@conclave/sdk";
import { fakeHost, gateInput } from "@conclave/sdk/testing";

import { words } from "./app.js";

test("a word of the list blocks", () => {
  const host = fakeHost({ config: { words: ["secret"] } });
  const check = (text) => host.run(() => words.check(gateInput(text)));
  assert.deepEqual(check("a Secret plan"), block("it holds “secret”"));
  assert.deepEqual(check("a plan"), allow());
});
