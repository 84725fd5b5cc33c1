import assert from "node:assert/strict";
import { test } from "node:test";

import { finish } from "@conclave/sdk";
import { fakeHost, task } from "@conclave/sdk/testing";

import { desk } from "./app.js";

test("a fact needs no model, and the rest does", () => {
  const host = fakeHost({
    config: { facts: { open: "From nine to five." } },
    replies: ["In 1844."],
  });
  const ask = (name, text) => host.run(() => desk[name](task(text)));
  assert.deepEqual(ask("respond", "When do you open?"), finish("From nine to five."));
  assert.equal(ask("respond", "When was it lit?"), undefined);
  assert.deepEqual(ask("step", "When was it lit?"), finish("In 1844."));
});
