// Files of the folders that the operator granted. Paging is hidden.

import * as host from "#host/files";
import { u64 } from "#u64";

import { ask } from "./errors.js";
import { readPages } from "./pages.js";
import { toBytes, toText } from "./utf8.js";
import { wellFormed } from "./well_formed.js";

/** Entries per call of the host. */
const PAGE = 256;

export const roots = () => host.roots();

export function list(path) {
  const entries = [];
  for (;;) {
    const after = entries.at(-1)?.name;
    const page = ask(path, () => host.listEntries(wellFormed(path), after, PAGE));
    if (page.length === 0) return entries.map(entryFrom);
    entries.push(...page);
  }
}

const entryFrom = ({ name, kind, length }) => ({ name, kind, length: Number(length) });

/** Returns each entry below a folder with its `path`, parents before children. */
export function* walk(path, { enter = () => true } = {}) {
  const folder = path.replace(/\/+$/, "");
  for (const entry of list(path)) {
    const found = { ...entry, path: `${folder}/${entry.name}` };
    yield found;
    if (found.kind === "directory" && enter(found)) yield* walk(found.path, { enter });
  }
}

/** Returns the whole file; with `offset` or `length`, a part of it. */
export const read = (path, part) =>
  readPages(
    (offset, length) => ask(path, () => host.read(wellFormed(path), u64(offset), length)),
    part,
  );

export const readText = (path) => toText(path, read(path));

export const readJson = (path) => JSON.parse(readText(path));

export function lines(path) {
  const all = readText(path).split(/\r?\n/);
  if (all.at(-1) === "") all.pop();
  return all;
}

/** Replaces the whole file; with `offset`, writes there. Returns the file's new length. */
export function write(path, data, { offset = 0, truncate = offset === 0 } = {}) {
  const bytes = toBytes(data);
  return Number(ask(path, () => host.write(wellFormed(path), u64(offset), bytes, truncate)));
}

export const remove = (path) => ask(path, () => host.remove(wellFormed(path)));
