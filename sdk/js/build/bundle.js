// Bundles a plugin with esbuild: for Node, to describe and test it, or for a component.

import { readFile } from "node:fs/promises";
import { createRequire, builtinModules } from "node:module";
import { dirname, extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

import { BuildError } from "./error.js";
import { ASYNC, MODULES, TOP_LEVEL_AWAIT, UNBUNDLED } from "./unavailable.js";

export const SDK = join(dirname(fileURLToPath(import.meta.url)), "..");

const BUILTIN = new Set(builtinModules.map((name) => name.split("/")[0]));

/** Settings that both targets share. */
const SHARED = {
  bundle: true,
  write: false,
  format: "esm",
  platform: "neutral",
  target: "es2023",
  mainFields: ["module", "main"],
  conditions: ["import", "module"],
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  logLevel: "silent",
  define: { "process.env.NODE_ENV": '"production"' },
  // An `import()` of a name that is not a literal becomes a `require`, which is a warning.
  supported: { "dynamic-import": false, "top-level-await": false },
};

/** What esbuild is told that the target lacks, so that it names each use with its line. */
const SYNCHRONOUS = {
  generator: false,
  "async-await": false,
  "async-generator": false,
  "for-await": false,
};

/** By the extension of a source file. */
const LOADERS = {
  ".js": "js",
  ".mjs": "js",
  ".cjs": "js",
  ".jsx": "jsx",
  ".ts": "ts",
  ".mts": "ts",
  ".cts": "ts",
  ".tsx": "tsx",
};

/** Returns esbuild from the folder where the toolchain is installed. */
function esbuildIn(toolchain) {
  try {
    return createRequire(join(toolchain, "package.json"))("esbuild");
  } catch {
    throw new BuildError([`the toolchain is not installed in ${toolchain}: run npm ci there`]);
  }
}

/** Returns the plugin's entry file with all that it imports, as a module for Node. */
export async function bundleForNode({ app, toolchain }) {
  const refused = [];
  const settings = {
    entryPoints: [app],
    outfile: "plugin.js",
    sourcemap: "inline",
    plugins: [sdk(), unavailable(), asyncFunctions(refused)],
  };
  const result = await run(toolchain, app, settings, refused);
  return result.outputFiles[0].text;
}

/**
 * Returns the component's module, its source map, and the interfaces of the host that it imports.
 * `specifier(name)` is the name of an interface in the contract's version; `lacks` has, by their names,
 * the globals that are absent in the component, with the alternatives.
 */
export async function bundleForComponent({ app, entry, toolchain, specifier, bigInt, lacks }) {
  const settings = {
    stdin: { contents: entry, resolveDir: dirname(app), sourcefile: "conclave-entry.js" },
    outfile: "plugin.js",
    sourcemap: "external",
    sourcesContent: false,
    plugins: [sdk({ specifier, bigInt }), unavailable()],
  };
  const result = await run(toolchain, app, settings);
  const [output] = Object.entries(result.metafile.outputs).filter(([name]) => name.endsWith(".js"));
  const imported = new Set(
    output[1].imports.filter(({ external }) => external).map(({ path }) => path),
  );
  const file = (end) => result.outputFiles.find(({ path }) => path.endsWith(end)).text;
  const text = file(".js");
  const warnings = await globalsUsed(toolchain, app, settings, lacks);
  if (text.includes("__require(")) warnings.push(UNBUNDLED);
  return { text, sourceMap: JSON.parse(file(".map")), imports: [...imported].sort(), warnings };
}

/** Throws also for what the settings' plugins have added to `refused`. */
async function run(toolchain, app, settings, refused = []) {
  const esbuild = esbuildIn(toolchain);
  let result;
  try {
    result = await esbuild.build({ ...SHARED, absWorkingDir: dirname(app), ...settings });
  } catch (error) {
    if (!error.errors) throw error;
    throw new BuildError([...refused, ...error.errors].map(sentence));
  }
  const errors = [...refused.map(sentence), ...dynamicImports(result)];
  if (errors.length > 0) throw new BuildError(errors);
  return result;
}

function sentence({ text, location, notes = [] }) {
  if (text.startsWith("Top-level await"))
    return `${location.file}:${location.line}: ${TOP_LEVEL_AWAIT}`;
  const missing = /^Could not resolve "((@[^"/]+\/)?[a-z0-9_][^"/]*)/i.exec(text);
  if (missing && location)
    return `${location.file}:${location.line}: the package ${missing[1]} is not installed: run \`npm install ${missing[1]}\`, which also adds it to the dependencies of package.json`;
  const place = location ? `${location.file}:${location.line}: ` : "";
  const hint = notes.length > 0 ? ` (${notes[0].text})` : "";
  return `${place}${text}${hint}`.replace(/\s+/g, " ");
}

/** Resolves the SDK's own modules, whatever version a plugin's `node_modules` has. */
function sdk({ specifier, bigInt } = {}) {
  const source = (path) => join(SDK, "src", path);
  return {
    name: "sdk",
    setup(build) {
      build.onResolve({ filter: /^@conclave\/sdk$/ }, () => ({ path: source("index.js") }));
      build.onResolve({ filter: /^conclave-sdk:/ }, ({ path }) => ({
        path: source(path.split(":")[1]),
      }));
      build.onResolve({ filter: /^@conclave\/sdk\/testing$/ }, ({ importer }) => ({
        errors: [
          {
            text: `${importer} is part of the plugin and imports @conclave/sdk/testing: only tests can`,
          },
        ],
      }));
      build.onResolve({ filter: /^#host\// }, ({ path, importer }) => {
        if (!importer.startsWith(SDK)) return undefined;
        const name = path.slice("#host/".length);
        return specifier
          ? { path: specifier(name), external: true, sideEffects: false }
          : { path: source(`native/${name}.js`) };
      });
      build.onResolve({ filter: /^wasi:/ }, ({ path, importer }) =>
        importer.startsWith(SDK) ? { path, external: true } : undefined,
      );
      build.onResolve({ filter: /^#u64$/ }, ({ importer }) =>
        importer.startsWith(SDK)
          ? { path: source(bigInt ? "u64_bigint.js" : "u64_number.js") }
          : undefined,
      );
    },
  };
}

/** Refuses modules that no component has, and names the alternative. */
function unavailable() {
  return {
    name: "unavailable",
    setup(build) {
      build.onResolve({ filter: /\.node$/ }, ({ path, importer, resolveDir }) => ({
        errors: [
          {
            text: `${short(importer, resolveDir)} imports ${path}, which is machine code: use a package in plain JavaScript`,
          },
        ],
      }));
      build.onResolve(
        { filter: /^(node:)?[a-z_0-9]+(\/[a-z/]+)?$/ },
        async ({ path, importer, resolveDir, kind, pluginData }) => {
          const name = path.replace(/^node:/, "").split("/")[0];
          // The imports of native tests, which run in Node.
          if (importer.startsWith(SDK)) return { path, external: true };
          if (pluginData?.isChecked || (!path.startsWith("node:") && !BUILTIN.has(name)))
            return undefined;
          // A package may have the name of a module of Node, such as `events` or `buffer`.
          if (!path.startsWith("node:")) {
            const found = await build.resolve(path, {
              importer,
              resolveDir,
              kind,
              pluginData: { isChecked: true },
            });
            if (found.errors.length === 0) return found;
          }
          const instead =
            MODULES[name] ??
            "a component has no modules of Node; use a package in plain JavaScript";
          return {
            errors: [{ text: `${short(importer, resolveDir)} imports ${path}: ${instead}` }],
          };
        },
      );
    },
  };
}

/**
 * Adds the async functions of the plugin's own files to `refused`, as errors of esbuild. Those of
 * packages may be unused.
 */
function asyncFunctions(refused) {
  return {
    name: "async-functions",
    setup(build) {
      build.onLoad({ filter: /\.[cm]?[jt]sx?$/ }, async ({ path }) => {
        if (path.startsWith(SDK) || path.includes(`${sep}node_modules${sep}`)) return;
        const settings = {
          loader: LOADERS[extname(path)],
          target: SHARED.target,
          supported: SYNCHRONOUS,
          logLevel: "silent",
        };
        const file = relative(build.initialOptions.absWorkingDir, path);
        try {
          await build.esbuild.transform(await readFile(path, "utf8"), settings);
        } catch ({ errors = [] }) {
          // Other problems, such as a syntax error, are those of the build itself.
          for (const { text, location } of errors) {
            if (!/^Transforming (async|for-await)/.test(text)) continue;
            refused.push({ text: ASYNC, location: { ...location, file } });
          }
        }
      });
    },
  };
}

const short = (path, folder) => (path ? relative(folder, path) : "the plugin");

/** esbuild turns `import()` into a promise, which no event loop would settle in a component. */
function dynamicImports({ metafile }) {
  return Object.entries(metafile.inputs)
    .filter(([, input]) => input.imports.some(({ kind }) => kind === "dynamic-import"))
    .map(
      ([file]) =>
        `${file} uses import(): write \`import … from\` at the top of the file, which is bundled`,
    );
}

/** Returns a warning for each global that the plugin's code names and no component has. */
async function globalsUsed(toolchain, app, settings, lacks) {
  const esbuild = esbuildIn(toolchain);
  const names = Object.keys(lacks);
  const probe = {
    name: "probe",
    setup(build) {
      build.onResolve({ filter: /^conclave-global:/ }, ({ path }) => ({
        path,
        namespace: "global",
        sideEffects: false,
      }));
      build.onLoad({ filter: /.*/, namespace: "global" }, ({ path }) => ({
        contents: `const value = {}; export { value as ${path.split(":")[1]} };`,
      }));
    },
  };
  // An injected file is part of the output only if something names its export.
  const result = await esbuild.build({
    ...SHARED,
    absWorkingDir: dirname(app),
    ...settings,
    inject: names.map((name) => `conclave-global:${name}`),
    plugins: [...settings.plugins, probe],
  });
  const inputs = Object.values(result.metafile.outputs).flatMap((output) =>
    Object.entries(output.inputs),
  );
  const used = new Set(
    inputs.filter(([, { bytesInOutput }]) => bytesInOutput > 0).map(([name]) => name),
  );
  const lineOf = await globalLines(dirname(app), Object.keys(result.metafile.inputs));
  return names
    .filter((name) => used.has(`global:conclave-global:${name}`))
    .map((name) => `${lineOf(name) ?? "a package"} names \`${name}\`: ${lacks[name]}`);
}

/** Returns a function for the first line of the plugin's own files that names a global. */
async function globalLines(folder, inputs) {
  const own = inputs.filter(
    (path) => /\.[cm]?[jt]sx?$/.test(path) && !/^\.\.|node_modules|^conclave-entry\.js$/.test(path),
  );
  const files = await Promise.all(
    own.map(async (path) => ({
      path,
      lines: (await readFile(join(folder, path), "utf8")).split("\n"),
    })),
  );
  return (name) => {
    const use = new RegExp(`(?<![.\\w$])${name}(?![\\w$])`);
    for (const { path, lines } of files) {
      // Comments and string literals are not uses.
      const plain = (line) => line.replace(/^\s*\*.*$|\/\/.*$|"[^"]*"|'[^']*'/g, "");
      const at = lines.findIndex((line) => use.test(plain(line)));
      if (at >= 0) return `${path}:${at + 1}`;
    }
  };
}
