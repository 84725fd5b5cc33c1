// The types are those of the modules.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as sdk from "@conclave/sdk";
import * as testing from "@conclave/sdk/testing";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "..");

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
