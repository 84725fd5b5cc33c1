// Describes a plugin by loading it natively, with the imports of native tests: nothing is granted.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { SDK, bundleForNode } from "./bundle.js";
import { BuildError } from "./error.js";
import { interfacesOf, partsOf, problemsOf } from "./kinds.js";

export async function describe({ app, toolchain }) {
  return description(await load({ app, toolchain }));
}

/** Returns `{ exports, tools }`: the interfaces, and the tools that need no settings. */
export function description(parts) {
  return { exports: interfacesOf(parts), tools: (parts.tool ?? []).map(({ value }) => value.spec) };
}

/** Returns the parts of the plugin. Throws if they do not make a plugin. */
export async function load({ app, toolchain }) {
  const text = await bundleForNode({ app, toolchain });
  const folder = await mkdtemp(join(tmpdir(), "conclave-describe-"));
  try {
    const file = join(folder, "plugin.mjs");
    await writeFile(file, text);
    const parts = partsOf(await evaluated(file, dirname(app)));
    const problems = problemsOf(parts);
    if (problems.length > 0) throw new BuildError(problems);
    return parts;
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function evaluated(file, own) {
  process.setSourceMapsEnabled(true);
  try {
    return await import(pathToFileURL(file));
  } catch (error) {
    // The code outside of functions runs once, at build time, without a host.
    throw new BuildError([
      `${lineOf(error, dirname(file), own)}the plugin's files cannot be loaded: ${String(error).split("\n", 1)[0]}`,
    ]);
  }
}

/**
 * Returns `FILE:LINE: ` of the plugin's own code that threw, or an empty text. `folder` is that of the
 * bundle, `own` that of the plugin.
 */
function lineOf(error, folder, own) {
  // The sources in the map are relative to the bundle, so those of the plugin are in its folder.
  for (const line of String(error?.stack).split("\n")) {
    const [, path, number] = /^ +at .*?(?:file:\/\/)?(\/[^()]*?):(\d+):\d+\)?$/.exec(line) ?? [];
    const source = path && relative(folder, path);
    if (
      source &&
      !source.startsWith("..") &&
      !source.includes("node_modules") &&
      !resolve(own, source).startsWith(join(SDK, "src")) &&
      path !== join(folder, "plugin.mjs")
    )
      return `${source}:${number}: `;
  }
  return "";
}
