import assert from "node:assert/strict";
import { test } from "node:test";

import { fakeHost } from "@conclave/sdk/testing";

import { notebook, remember } from "./app.js";

test("notes with all words are found", () => {
  fakeHost({ kv: true }).run(() => {
    remember.call({ note: "Skerryvore was lit in 1844." });
    remember.call({ note: "Bell Rock was lit in 1811." });
    assert.deepEqual(notebook.search("lit bell", 5), ["Bell Rock was lit in 1811."]);
    assert.equal(notebook.search("lit", 1).length, 1);
    assert.deepEqual(notebook.search("Oban", 5), []);
  });
});
