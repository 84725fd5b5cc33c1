// Prepares a component: one bundled module, a world with the exports and imports that it uses, and
// the command that makes the component of them.

import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { SourceMap } from "node:module";
import { dirname, join, resolve } from "node:path";

import { SDK, bundleForComponent } from "./bundle.js";
import { description, load } from "./describe.js";
import { BuildError } from "./error.js";
import { INTERFACES } from "./kinds.js";
import { DEFAULT_ENGINE_LACKS, GLOBALS } from "./unavailable.js";

const WORLD = "javascript-plugin";

/** The package of `src/random.js`, as QuickJS imports it. */
const WASI_RANDOM = `package wasi:random@0.2.12;

interface insecure-seed {
    insecure-seed: func() -> tuple<u64, u64>;
}
`;

/**
 * How each engine's compiler is called, whether its 64-bit integers are BigInts, the globals that it
 * lacks, the lines that it puts before the module's, and the modules of the SDK that run before and
 * after the plugin's.
 */
const ENGINES = {
  quickjs: {
    bigInt: false,
    lacks: { ...GLOBALS, ...DEFAULT_ENGINE_LACKS },
    linesBefore: 0,
    before: ["globals.js", "random.js"],
    after: ["random_after_setup.js"],
    command: ({ toolchain, wit, module, component }) => [
      join(toolchain, "node_modules/componentize-qjs/cli.mjs"),
      // The contract's functions are not async.
      "--sync",
      "--wit",
      wit,
      "--world",
      WORLD,
      "--js",
      module,
      "--output",
      component,
    ],
  },
  starlingmonkey: {
    bigInt: true,
    lacks: GLOBALS,
    linesBefore: 1,
    before: ["globals.js"],
    after: [],
    command: ({ toolchain, wit, module, component }) => [
      join(toolchain, "node_modules/@bytecodealliance/componentize-js/src/cli.js"),
      module,
      "--wit",
      wit,
      "--world-name",
      WORLD,
      "--out",
      component,
      // `fetch` of the SDK has the contract's errors; the engine's own would be a second way out.
      "--disable",
      "http",
      "fetch-event",
    ],
  },
};

export async function prepare({ app, wit, out, toolchain, engine }) {
  const build = ENGINES[engine];
  if (!build)
    throw new BuildError([
      `there is no engine ${engine}: there are ${Object.keys(ENGINES).join(" and ")}`,
    ]);
  const parts = await load({ app, toolchain });
  const names = description(parts).exports;
  const contract = await packageOf(wit);
  const bundle = await bundleForComponent({
    app,
    entry: entryOf(app, names, build),
    toolchain,
    specifier: (name) => contract.replace("@", `/${name}@`),
    bigInt: build.bigInt,
    lacks: build.lacks,
  });
  const own = bundle.imports.filter((specifier) => !specifier.startsWith("wasi:"));
  const wasi = bundle.imports.filter((specifier) => specifier.startsWith("wasi:"));
  const imports = own.map((specifier) => specifier.split("/")[1].split("@")[0]);
  const paths = {
    toolchain,
    wit: join(out, "wit"),
    module: join(out, "plugin.js"),
    component: join(out, "plugin.wasm"),
  };
  await rm(paths.wit, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  await cp(wit, paths.wit, { recursive: true });
  await writeFile(join(paths.wit, `${WORLD}.wit`), worldOf(contract, [...imports, ...wasi], names));
  if (wasi.length > 0) {
    await mkdir(join(paths.wit, "deps/random"), { recursive: true });
    await writeFile(join(paths.wit, "deps/random/random.wit"), WASI_RANDOM);
  }
  await writeFile(paths.module, bundle.text + lineTable(app, bundle, build.linesBefore));
  return {
    ...description(parts),
    imports,
    warnings: bundle.warnings,
    command: [process.execPath, ...build.command(paths)],
    component: paths.component,
  };
}

/** Returns the name and version of the contract's package, such as `conclave:plugin@0.1.0`. */
async function packageOf(wit) {
  const files = (await readdir(wit)).filter((name) => name.endsWith(".wit"));
  for (const name of files) {
    const found = /^package ([^;\s]+);/m.exec(await readFile(join(wit, name), "utf8"));
    if (found) return found[1];
  }
  throw new BuildError([`${wit} holds no WIT package: name the folder with the contract's files`]);
}

/** Returns the component's entry module: the plugin, and an adapter for each interface. */
function entryOf(app, names, { before, after }) {
  const modules = names.map((name) => ({
    name: INTERFACES[name].name,
    module: INTERFACES[name].module,
  }));
  return [
    ...before.map((module) => `import "conclave-sdk:${module}";`),
    `import * as app from ${JSON.stringify(app)};`,
    ...after.map((module) => `import "conclave-sdk:${module}";`),
    'import { KIND } from "conclave-sdk:kind.js";',
    ...modules.map(
      ({ name, module }) =>
        `import { ${name} as ${name}Of } from "conclave-sdk:exports/${module}";`,
    ),
    "const parts = {};",
    "for (const part of Object.values(app)) if (part?.[KIND]) (parts[part[KIND]] ??= []).push(part);",
    ...modules.map(({ name }) => `export const ${name} = ${name}Of(parts);`),
    "",
  ].join("\n");
}

function worldOf(contract, imports, names) {
  return [
    `package ${contract};`,
    "",
    "/// The imports and exports that the plugin uses.",
    `world ${WORLD} {`,
    ...imports.map((name) => `    import ${name};`),
    ...names.map((name) => `    export ${name};`),
    "}",
    "",
  ].join("\n");
}

/**
 * Returns code that names, for each line of the bundle, the source and its line. The SDK reads it
 * when an exception goes to the log (`src/format.js`).
 */
function lineTable(app, { text, sourceMap }, linesBefore) {
  const map = new SourceMap(sourceMap);
  const sources = [];
  const lines = text.split("\n").map((line, number) => {
    const entry = map.findEntry(number, line.length - line.trimStart().length);
    if (entry.originalSource === undefined || entry.generatedLine !== number) return "";
    const source = sourceOf(app, entry.originalSource);
    if (!sources.includes(source)) sources.push(source);
    return `${sources.indexOf(source)}:${entry.originalLine + 1}`;
  });
  return `globalThis.__conclaveLines = ${JSON.stringify({ sources, lines: ";".repeat(linesBefore) + lines.join(";") })};\n`;
}

/** The SDK leaves its own frames out of a stack by this name. */
function sourceOf(app, source) {
  return resolve(dirname(app), source).startsWith(join(SDK, "src")) ? "@conclave/sdk" : source;
}
