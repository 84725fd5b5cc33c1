// The JavaScript of the page about strategies runs as it is written there.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { delivery } from "../src/index.js";
import { room } from "../src/testing.js";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "..");

test("the strategy of the page", async () => {
  const page = readFileSync(join(SDK, "../../docs/write-plugins/strategy.md"), "utf8");
  const [, code] = page.match(/^```js app.js\n(.*?)^```$/ms);
  const folder = mkdtempSync(join(tmpdir(), "conclave-page-"));
  try {
    mkdirSync(join(folder, "node_modules/@conclave"), { recursive: true });
    symlinkSync(SDK, join(folder, "node_modules/@conclave/sdk"));
    const file = join(folder, "app.mjs");
    writeFileSync(file, code);
    const { polite } = await import(pathToFileURL(file));
    const decided = (activity) => {
      const context = room({ pendingResults: ["a"], channels: [{ id: "web", activity }] });
      return polite.decide({ tag: "timer" }, context);
    };
    assert.deepEqual(decided("idle"), [delivery.deliver(["a"])]);
    assert.deepEqual(decided("speaking"), [delivery.wait(10_000, "web")]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
