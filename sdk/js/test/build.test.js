// `describe` and `prepare`, and what they refuse. Needs the toolchain: npm ci in
// toolchain/, or CONCLAVE_JS_TOOLCHAIN.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const SDK = join(dirname(fileURLToPath(import.meta.url)), "..");
const WIT = join(SDK, "../../wit");
const TOOLCHAIN = process.env.CONCLAVE_JS_TOOLCHAIN ?? join(SDK, "toolchain");
const isInstalled = existsSync(join(TOOLCHAIN, "node_modules/esbuild"));
// In CI a missing toolchain is a failure.
const skip =
  isInstalled || process.env.CI ? false : `the toolchain is not installed: npm ci in ${TOOLCHAIN}`;
const FOLDER = mkdtempSync(join(tmpdir(), "conclave-sdk-test-"));
after(() => rmSync(FOLDER, { recursive: true }));

let count = 0;

/** Returns the entry file of a new plugin with these files; the first one is the entry. */
function plugin(files) {
  const folder = join(FOLDER, `plugin-${count++}`);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return join(folder, Object.keys(files)[0]);
}

function cli(...args) {
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    [join(SDK, "bin/conclave-sdk.js"), ...args, "--toolchain", TOOLCHAIN],
    { encoding: "utf8" },
  );
  assert.equal(stderr, "");
  const printed = JSON.parse(stdout);
  assert.equal(status, printed.errors ? 1 : 0);
  return printed;
}

const describe = (files) => cli("describe", plugin(files));

function prepare(files, ...more) {
  const app = typeof files === "string" ? files : plugin(files);
  const out = join(dirname(app), "build");
  return { ...cli("prepare", app, "--wit", WIT, "--out", out, ...more), out };
}

const TOOL = `
  import { tool } from "@conclave/sdk";
  export const a = tool({ name: "a", description: "Does it.", run: () => "done" });
`;
const withCode = (code) => ({ "app.js": `${TOOL}\n${code}` });

test("the exports of an entry file are described", { skip }, () => {
  const described = describe({
    "app.ts": `
      import { agent, finish, s, tool, toolset, type View } from "@conclave/sdk";
      export const count = tool({
        name: "count", description: "Counts.", input: s.object({ text: s.string() }),
        run: ({ text }): number => text.length,
      });
      export const more = toolset({ list: () => [], call: () => "" });
      export default agent({ step: (view: View) => finish(view.taskName), respond: () => undefined });
    `,
  });
  assert.deepEqual(described, {
    exports: ["tools", "agent", "responder"],
    tools: [
      {
        name: "count",
        description: "Counts.",
        input: {
          type: "object",
          properties: { text: { type: "string" } },
          required: ["text"],
          additionalProperties: false,
        },
        idempotent: false,
      },
    ],
  });
});

test("a mistake in a definition is one sentence", { skip }, () => {
  const errors = (code) => describe({ "app.js": code }).errors;
  assert.match(errors("export const a = 1;")[0], /exports no tool, agent or other part/);
  assert.match(
    errors(`import { tool } from "@conclave/sdk"; export const a = tool({ name: "a" });`)[0],
    /the function run is missing/,
  );
  assert.match(
    errors(TOOL + "export const b = a; export const c = a;")[0],
    /two tools have the name a/,
  );
  assert.match(
    errors(
      `import { gate } from "@conclave/sdk"; const g = () => gate({ check() {} }); export const a = g(), b = g();`,
    )[0],
    /a and b are both of the kind gate: a plugin has one/,
  );
  assert.match(
    errors(`import { config } from "@conclave/sdk"; export const a = config.get(`)[0],
    /^app\.js:1: /,
  );
  assert.match(
    errors(`import { files } from "@conclave/sdk"; files.read("/a");`)[0],
    /^app\.js:1: the plugin's files cannot be loaded: Denied/,
  );
  assert.match(
    errors(`import { tool } from "@conclave/sdk";\nconst s = {};\nexport const a = s.objct();`)[0],
    /^app\.js:3: .* s\.objct is not a function/,
  );
  assert.match(
    errors(
      `import { tool } from "@conclave/sdk";\n\nexport const a = tool({ idempotnt: true });`,
    )[0],
    /^app\.js:3: /,
  );
  assert.match(
    errors(`import { tol } from "@conclave/sdk"; tol();`)[0],
    /No matching export .* for import "tol"/,
  );
});

test("a component imports only what its plugin uses", { skip }, () => {
  const world = (code) => {
    const { out, imports } = prepare({ "app.js": code });
    const text = readFileSync(join(out, "wit/javascript-plugin.wit"), "utf8");
    // QuickJS imports the seed of its random numbers anyway.
    assert.deepEqual(
      [...text.matchAll(/import (.*);/g)].map(([, name]) => name),
      [...imports, "wasi:random/insecure-seed@0.2.12"],
    );
    return { imports, exports: [...text.matchAll(/export (.*);/g)].map(([, name]) => name) };
  };
  assert.deepEqual(world(TOOL), { imports: ["log"], exports: ["tools"] });
  assert.deepEqual(
    world(
      TOOL.replace("tool }", "tool, kv, fetch, secret }").replace(
        '"done"',
        'kv.getText("a") + fetch("https://a.example").text()',
      ),
    ),
    {
      imports: ["fetch", "kv", "log"],
      exports: ["tools"],
    },
  );
  assert.deepEqual(
    world(`import { agent, finish, model } from "@conclave/sdk";
      export const a = agent({ step: () => finish(model.answer().content) });`),
    { imports: ["log", "model", "state"], exports: ["agent"] },
  );
  assert.deepEqual(
    world(
      `import { strategy } from "@conclave/sdk"; export const a = strategy({ decide: () => [] });`,
    ),
    { imports: ["delivery-context", "log"], exports: ["delivery-strategy"] },
  );
});

test("every interface of the contract can be imported and exported", { skip }, () => {
  const { imports, exports } = prepare({
    "app.js": `
      import * as sdk from "@conclave/sdk";
      const { agent, analyzer, channel, condenser, gate, judge, memory, observer, responder, simulatedUser, strategy, tool } = sdk;
      export const a = agent({ step() {}, respond() {} });
      export const b = analyzer({ assess() {} });
      export const c = condenser({ condense() {} });
      export const d = gate({ check() {} });
      export const e = judge({ valid() {} });
      export const f = memory({ search() {} });
      export const g = observer({ observe() {} });
      export const h = simulatedUser({ answer() {} });
      export const i = strategy({ decide() {} });
      export const j = tool({ name: "a", description: "All.", run: () => Object.keys(sdk) });
      export const k = [responder];
      export const l = channel({ send() {}, received() {} });
    `,
  });
  const all = readFileSync(join(WIT, "world.wit"), "utf8").split("world all {")[1];
  const named = (word) =>
    [...all.matchAll(new RegExp(`${word} ([a-z-]+);`, "g"))].map(([, name]) => name);
  const common = readFileSync(join(WIT, "world.wit"), "utf8")
    .split("world imports {")[1]
    .split("}")[0];
  const commonNames = [...common.matchAll(/import ([a-z-]+);/g)].map(([, name]) => name);
  assert.deepEqual([...imports].sort(), [...named("import"), ...commonNames].sort());
  assert.deepEqual([...exports].sort(), named("export").sort());
});

test("what no component has is named with the alternative", { skip }, () => {
  const refused = (code, more = {}) => prepare({ ...withCode(code), ...more }).errors.join("\n");
  assert.match(
    refused('import "node:fs";'),
    /app\.js imports node:fs: use `files` of @conclave\/sdk/,
  );
  assert.match(refused('import "fs/promises";'), /imports fs\/promises: use `files`/);
  assert.match(refused('import "node:worker_threads";'), /one thread; .* `background\.start`/);
  assert.match(refused('import "net";'), /no sockets; use `fetch`/);
  assert.match(refused('import "node:zlib";'), /no modules of Node/);
  assert.match(
    refused('import native from "./x.node"; native();'),
    /\.\/x\.node, which is machine code/,
  );
  assert.match(
    refused('export const load = () => import("./b.js");', { "b.js": "" }),
    /app\.js uses import\(\): write `import … from`/,
  );
  assert.match(refused('import "@conclave/sdk/testing";'), /only tests can/);
  assert.match(
    refused('import "left-pad";'),
    /^app\.js:\d+: the package left-pad is not installed: run `npm install left-pad`/,
  );
});

test("async functions and top-level await are refused with their lines", { skip }, () => {
  const errors = (code, more = {}) => prepare({ "app.js": code, ...more }).errors;
  const found = errors(
    `import { tool } from "@conclave/sdk"; import "./more.ts";
     export const a = tool({ name: "a", description: "A.", run: async () => 1 });
     async function helper() { return 1; }
     class One { async step() {} async *all() {} }
     function* fine() { yield 1; }`,
    { "more.ts": "export const b: number = 1;\nexport const c = async (): Promise<number> => b;" },
  );
  assert.deepEqual(found.map((text) => text.split(": ")[0]).sort(), [
    "app.js:2",
    "app.js:3",
    "app.js:4",
    "app.js:4",
    "more.ts:2",
  ]);
  assert.match(found[0], /: no event loop runs in a component, so an async function never ends: /);
  assert.match(errors(`${TOOL}\nawait 1;`)[0], /^app\.js:5: no event loop .* module cannot await/);
  assert.match(errors(`${TOOL}\nfor await (const one of []) one;`)[0], /^app\.js:5: no event loop/);
  // Not all functions of a package are called.
  const { errors: none } = prepare({
    ...withCode('import { now } from "pkg"; export const b = now;'),
    "node_modules/pkg/package.json": '{"name": "pkg", "type": "module", "main": "index.js"}',
    "node_modules/pkg/index.js": "export const now = 1; export async function later() {}",
  });
  assert.equal(none, undefined);
  assert.match(
    errors(`${TOOL} import "pkg";`, {
      "node_modules/pkg/package.json": '{"name": "pkg", "type": "module", "main": "index.js"}',
      "node_modules/pkg/index.js": "await 1;",
    })[0],
    /^node_modules\/pkg\/index\.js:1: .* a module cannot await/,
  );
  // A tool of a package is checked by what it is.
  assert.match(
    errors(
      `import { tool } from "@conclave/sdk"; import run from "pkg";
       export const a = tool({ name: "a", description: "A.", run });`,
      {
        "node_modules/pkg/package.json": '{"name": "pkg", "type": "module", "main": "index.js"}',
        "node_modules/pkg/index.js": "export default async () => 1;",
      },
    )[0],
    /tool a: run is async/,
  );
});

test("a global that no component has is a warning", { skip }, () => {
  const { warnings } = prepare(
    withCode("export const wait = () => setTimeout(a, fetch('https://a.example'));"),
  );
  assert.deepEqual(
    warnings.map((text) => text.split(": ")[0]),
    ["app.js:5 names `setTimeout`", "app.js:5 names `fetch`"],
  );
  assert.match(
    prepare(withCode("export const hostOf = (url) => new URL(url).hostname;")).warnings[0],
    /the default engine has no URL/,
  );
  assert.match(
    prepare(withCode("export const load = (name) => import(name);")).warnings[0],
    /`import\(\)` and no literal, which is not bundled/,
  );
  assert.deepEqual(
    prepare(withCode('import { fetch } from "@conclave/sdk"; export { fetch };')).warnings,
    [],
  );
});

test("pure packages are bundled, as are TypeScript and JSON", { skip }, () => {
  const { out } = prepare({
    "app.ts": `${TOOL}
      import twice from "pure"; import { events } from "events"; import data from "./data.json";
      export enum Size { Small } export const b = [twice, events, data, Size];`,
    "data.json": '{"year": 1844}',
    "node_modules/pure/package.json": '{"name": "pure", "main": "index.cjs"}',
    "node_modules/pure/index.cjs": "module.exports = (n) => 2 * n;",
    "node_modules/events/package.json": '{"name": "events", "main": "index.js"}',
    "node_modules/events/index.js": 'export const events = "those of a package";',
  });
  const text = readFileSync(join(out, "plugin.js"), "utf8");
  for (const part of ["2 * n", "those of a package", "1844"]) assert.ok(text.includes(part), part);
});

test("each line of a bundle has its source's", { skip }, () => {
  const { out } = prepare({ "app.js": `${TOOL}\nexport const here = 1;\n` });
  const text = readFileSync(join(out, "plugin.js"), "utf8");
  const { sources, lines } = JSON.parse(
    text.slice(text.lastIndexOf("__conclaveLines = ") + 18, text.lastIndexOf(";")),
  );
  const line = text.split("\n").findIndex((one) => one.includes("here = 1"));
  const [source, number] = lines.split(";")[line].split(":");
  assert.deepEqual([sources[source], number], ["app.js", "5"]);
});

test("the command names the engine's compiler and its files", { skip }, () => {
  const { command, component, out } = prepare({ "app.js": TOOL });
  assert.equal(component, join(out, "plugin.wasm"));
  assert.ok(
    command[1].endsWith("componentize-qjs/cli.mjs") && command.includes("--sync"),
    command.join(" "),
  );
  const big = prepare(
    withCode("export const hostOf = (url) => new URL(url).hostname;"),
    "--engine",
    "starlingmonkey",
  );
  assert.deepEqual(big.warnings, []);
  assert.ok(big.command[1].endsWith("componentize-js/src/cli.js"), big.command.join(" "));
  assert.match(readFileSync(join(big.out, "plugin.js"), "utf8"), /BigInt/);
  assert.match(prepare({ "app.js": TOOL }, "--engine", "v8").errors[0], /there is no engine v8/);
});

test("a wrong call of the program says how to call it", { skip }, () => {
  assert.match(cli("prepare", "app.js").errors[0], /^usage:/);
  assert.match(cli("describe", "app.js", "--fast").errors[0], /Unknown option '--fast'/);
  assert.match(cli("describe", join(FOLDER, "absent.js")).errors[0], /Could not resolve/);
});

/** Returns what `code` prints of the component's exports, with a host that answers `imports`. */
function played({ out }, imports, code) {
  let text = readFileSync(join(out, "plugin.js"), "utf8");
  for (const [name, source] of Object.entries(imports)) {
    text = text.replaceAll(name, `data:text/javascript,${encodeURIComponent(source)}`);
  }
  writeFileSync(join(out, "played.mjs"), text);
  writeFileSync(
    join(out, "run.mjs"),
    `const print = (value) => process.stdout.write(JSON.stringify(value));
     const app = await import("./played.mjs"); ${code}`,
  );
  return JSON.parse(
    execFileSync(process.execPath, [join(out, "run.mjs")], { encoding: "utf8", stdio: "pipe" }),
  );
}

test("a random number at the top level does not fix those of the calls", { skip }, () => {
  const prepared = prepare({
    "app.js": `import { tool } from "@conclave/sdk";
      const { random } = Math; const early = Math.random();
      const run = () => [early, Math.random(), random()];
      export const a = tool({ name: "a", description: "Rolls.", run });`,
  });
  const roll = (seed) =>
    played(
      prepared,
      {
        "wasi:random/insecure-seed@0.2.12":
          "export const insecureSeed = () => [globalThis.seed ?? 1, 2];",
        "conclave:plugin/log@0.1.0-draft": "export const log = () => {};",
      },
      `globalThis.seed = ${seed}; print(app.tools.call("a", "{}").value);`,
    );
  const [one, again, other] = [roll(3), roll(3), roll(4)].map(JSON.parse);
  assert.deepEqual(one, again);
  assert.equal(one[0], other[0]);
  assert.notEqual(one[1], other[1]);
  assert.notEqual(one[2], other[2]);
});

const TEMPLATES = readdirSync(join(SDK, "templates"), { withFileTypes: true });
for (const { name: kind } of TEMPLATES.filter((entry) => entry.isDirectory())) {
  test(`the template of ${kind} passes its test and can be prepared`, { skip }, () => {
    const folder = join(FOLDER, kind);
    cpSync(join(SDK, "templates", kind), folder, { recursive: true });
    cpSync(join(SDK, "templates/package.json"), join(folder, "package.json"));
    for (const name of readdirSync(folder)) {
      const text = readFileSync(join(folder, name), "utf8")
        .replaceAll("<NAME>", "my-plugin")
        .replaceAll("<SDK>", SDK);
      writeFileSync(join(folder, name), text);
    }
    mkdirSync(join(folder, "node_modules/@conclave"), { recursive: true });
    symlinkSync(SDK, join(folder, "node_modules/@conclave/sdk"));
    const { NODE_TEST_CONTEXT, ...env } = process.env;
    execFileSync(process.execPath, ["--test"], { cwd: folder, env });
    const { errors, warnings } = prepare(join(folder, "app.js"));
    assert.deepEqual([errors, warnings], [undefined, []]);
  });
}
