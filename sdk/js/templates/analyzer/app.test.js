import assert from "node:assert/strict";
import { test } from "node:test";

import { act, callTool, high, low } from "@conclave/sdk";

import { careful } from "./app.js";

test("deleting is risky, and reading is not", () => {
  const risk = (turn) => careful.assess(turn.action);
  assert.deepEqual(risk(act.run("rm -r notes")), high("it deletes files"));
  assert.deepEqual(risk(callTool("notes.forget", { id: 7 })), high("it deletes something"));
  assert.deepEqual(risk(act.read("notes.md")), low());
});
