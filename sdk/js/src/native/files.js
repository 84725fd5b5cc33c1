// Files in memory, below granted folders.

import { denies, fails, host } from "./current.js";

/** The size limit of a file, so that a wrong offset does not use up the memory of the test. */
const LARGEST = 256 << 20;

const files = () => host().grants.files ?? { contents: new Map(), folders: [] };

function check(path, writes) {
  const isPlain = !path.split("/").some((part) => part === "." || part === "..");
  const isGranted = files().folders.some(
    (root) =>
      (path === root.path || path.startsWith(`${root.path}/`)) && (root.writable || !writes),
  );
  if (!isPlain || !isGranted) denies("files", path);
}

export const roots = () => files().folders.map((root) => ({ ...root }));

export function listEntries(path, after, count) {
  check(path, false);
  const { contents, folders } = files();
  if (contents.has(path)) fails({ tag: "not-a-directory" });
  const folder = `${path.replace(/\/+$/, "")}/`;
  const entries = new Map();
  for (const [file, bytes] of contents) {
    if (!file.startsWith(folder)) continue;
    const [name, ...below] = file.slice(folder.length).split("/");
    const entry =
      below.length > 0 ? { kind: "directory", length: 0 } : { kind: "file", length: bytes.length };
    if (!entries.has(name)) entries.set(name, { name, ...entry });
  }
  if (entries.size === 0 && !folders.some((root) => root.path === path))
    fails({ tag: "not-found" });
  const sorted = [...entries.values()].sort((one, other) => inBytes(one.name, other.name));
  return sorted
    .filter(({ name }) => after === undefined || inBytes(name, after) > 0)
    .slice(0, count);
}

const inBytes = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));

export function read(path, offset, length) {
  check(path, false);
  const bytes = files().contents.get(path) ?? fails(absent(path));
  return bytes.slice(offset, offset + length);
}

export function write(path, offset, bytes, truncate) {
  check(path, true);
  const { contents } = files();
  const old = contents.get(path);
  if (!old && absent(path).tag === "not-a-file") fails(absent(path));
  const end = offset + bytes.length;
  if (end > LARGEST) fails({ tag: "quota-exceeded", val: LARGEST });
  const length = truncate ? end : Math.max(end, old?.length ?? 0);
  const written = new Uint8Array(length);
  written.set((old ?? new Uint8Array()).subarray(0, length));
  written.set(bytes, offset);
  contents.set(path, written);
  return length;
}

export function remove(path) {
  check(path, true);
  if (!files().contents.delete(path) && absent(path).tag === "not-a-file") fails(absent(path));
}

/** A path that is no file is a folder, or nothing. */
function absent(path) {
  const { contents, folders } = files();
  const isFolder =
    folders.some((root) => root.path === path) ||
    [...contents.keys()].some((file) => file.startsWith(`${path.replace(/\/+$/, "")}/`));
  return { tag: isFolder ? "not-a-file" : "not-found" };
}
