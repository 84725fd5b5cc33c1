// Files of the folders that the operator granted. Paging is hidden.

import * as host from "#host/files";
import { u64 } from "#u64";

import { ask } from "./errors.js";
import { toBytes, toText } from "./utf8.js";

/** Bytes and entries per call of the host: few calls, and small enough for a small plugin. */
const PAGE_BYTES = 128 * 1024;
const PAGE_ENTRIES = 256;

const of = (path, work) => ask(path, work);

export const roots = () => host.roots();

export function list(path) {
  const entries = [];
  for (;;) {
    const after = entries.at(-1)?.name;
    const page = of(path, () => host.listEntries(path, after, PAGE_ENTRIES));
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
export function read(path, { offset = 0, length = Infinity } = {}) {
  const pages = [];
  let size = 0;
  while (size < length) {
    const count = Math.min(PAGE_BYTES, length - size);
    const page = of(path, () => host.read(path, u64(offset + size), count));
    if (page.length === 0) break;
    pages.push(page);
    size += page.length;
  }
  return joined(pages, size);
}

export const readText = (path) => toText(path, read(path));

export const readJson = (path) => JSON.parse(readText(path));

export function lines(path) {
  const all = readText(path).split(/\r?\n/);
  if (all.at(-1) === "") all.pop();
  return all;
}

/** Replaces the whole file; with `offset`, writes there. Returns the file's new length. */
export function write(path, data, { offset = 0, truncate = offset === 0 } = {}) {
  return Number(of(path, () => host.write(path, u64(offset), toBytes(data), truncate)));
}

export const remove = (path) => of(path, () => host.remove(path));

/** Returns the bytes of several pages as one array. */
export function joined(pages, size) {
  if (pages.length === 1) return pages[0];
  const bytes = new Uint8Array(size);
  let offset = 0;
  for (const page of pages) {
    bytes.set(page, offset);
    offset += page.length;
  }
  return bytes;
}
