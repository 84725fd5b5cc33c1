import assert from "node:assert/strict";
import { test } from "node:test";

import { fakeHost, task } from "@conclave/sdk/testing";

import { guest } from "./app.js";

test("a question gets its fact, and everything else a goodbye", () => {
  const host = fakeHost({ config: { facts: { date: "The first of June." } } });
  const answer = (text) => host.run(() => guest.answer(text, task("A table, please.")));
  assert.equal(answer("For which date?"), "The first of June.");
  assert.equal(answer("The date is booked."), "quit");
});
