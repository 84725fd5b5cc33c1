import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, ending } from "@conclave/sdk/testing";

import { years } from "./app.js";

test("an answer needs a year, and the year is the result", () => {
  assert.equal(years.valid(answer("It is very old.")), false);
  assert.equal(years.valid(answer("It was lit in 1844.")), true);
  assert.equal(years.valid(answer("Go on.", { responder: "user" })), undefined);
  assert.equal(years.result(ending("It was lit in 1844.")), "1844");
});
