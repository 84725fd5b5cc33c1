// The files of docs/write-plugins/javascript.md pass their tests as they are written, and can be
// prepared.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import * as sdk from "@conclave/sdk";
import * as testing from "@conclave/sdk/testing";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "..");
const PAGE = readFileSync(join(SDK, "../../docs/write-plugins/javascript.md"), "utf8");
const TOOLCHAIN = process.env.CONCLAVE_JS_TOOLCHAIN ?? join(SDK, "toolchain");
const isInstalled = existsSync(join(TOOLCHAIN, "node_modules/esbuild"));
// In CI a missing toolchain is a failure.
const skip =
  isInstalled || process.env.CI ? false : `the toolchain is not installed: npm ci in ${TOOLCHAIN}`;
const FOLDER = mkdtempSync(join(tmpdir(), "conclave-sdk-page-"));
after(() => rmSync(FOLDER, { recursive: true }));

test("the tool and the agent of the page pass their tests", { skip }, () => {
  for (const [, name, text] of PAGE.matchAll(/```\w+ (\S+)\n(.*?)```/gs)) {
    mkdirSync(dirname(join(FOLDER, name)), { recursive: true });
    writeFileSync(join(FOLDER, name), text);
  }
  writeFileSync(join(FOLDER, "package.json"), '{"type": "module"}');
  mkdirSync(join(FOLDER, "node_modules/@conclave"), { recursive: true });
  symlinkSync(SDK, join(FOLDER, "node_modules/@conclave/sdk"));
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  for (const [folder, exports] of [
    [FOLDER, "tools"],
    [join(FOLDER, "agent"), "agent"],
  ]) {
    execFileSync(process.execPath, ["--test", "app.test.js"], { cwd: folder, env });
    const { stdout } = spawnSync(
      process.execPath,
      [
        join(SDK, "bin/conclave-sdk.js"),
        "prepare",
        join(folder, "app.js"),
        "--wit",
        join(SDK, "../../wit"),
        "--out",
        join(folder, "build"),
        "--toolchain",
        TOOLCHAIN,
      ],
      { encoding: "utf8" },
    );
    assert.deepEqual(JSON.parse(stdout).exports, [exports]);
  }
  JSON.parse(readFileSync(join(FOLDER, "cases.json"), "utf8"));
});

/** Returns the names that a file of types declares at its top, or in one of its namespaces. */
function declared(text) {
  return [...text.matchAll(/^(?:export |  )(?:function|class|const|namespace) (\w+)/gm)].map(
    ([, name]) => name,
  );
}

test("the types declare what the modules export, and nothing else", () => {
  const types = readFileSync(join(SDK, "types/index.d.ts"), "utf8");
  const namespaces = new Map();
  const top = types.replace(/^export namespace (\w+) \{\n(.*?)^\}/gms, (_, name, body) => {
    namespaces.set(name, declared(body.replace(/^  interface .*?^  \}/gms, "")));
    return `export const ${name}: object;`;
  });
  const exported = declared(top).filter(
    (name) =>
      top.includes(`export function ${name}`) ||
      top.includes(`export class ${name}`) ||
      top.includes(`export const ${name}`),
  );
  assert.deepEqual([...new Set(exported)].sort(), Object.keys(sdk).sort());
  for (const [name, names] of namespaces) {
    assert.deepEqual([...new Set(names)].sort(), Object.keys(sdk[name]).sort(), name);
  }
  const ofTesting = readFileSync(join(SDK, "types/testing.d.ts"), "utf8");
  assert.deepEqual(
    declared(ofTesting)
      .filter((name) => ofTesting.includes(`export function ${name}(`))
      .sort(),
    Object.keys(testing).sort(),
  );
});
