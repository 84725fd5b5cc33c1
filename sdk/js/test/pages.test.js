// The JavaScript of the page about strategies runs as it is written there.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "..");

test("the strategy of the page, and its test", () => {
  const page = readFileSync(join(SDK, "../../docs/write-plugins/strategy.md"), "utf8");
  const files = [...page.matchAll(/^```js (\S+)\n(.*?)^```$/gms)];
  assert.deepEqual(
    files.map(([, name]) => name),
    ["app.js", "app.test.js"],
  );
  const folder = mkdtempSync(join(tmpdir(), "conclave-page-"));
  try {
    mkdirSync(join(folder, "node_modules/@conclave"), { recursive: true });
    symlinkSync(SDK, join(folder, "node_modules/@conclave/sdk"));
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
    for (const [, name, text] of files) writeFileSync(join(folder, name), text);
    // Otherwise the inner run reports to the runner of this test, and not to its output.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const run = spawnSync(process.execPath, ["--test", "--test-reporter=tap", "app.test.js"], {
      cwd: folder,
      env,
      encoding: "utf8",
    });
    assert.equal(run.status, 0, run.stdout + run.stderr);
    assert.match(run.stdout, /^# pass 2$/m);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
