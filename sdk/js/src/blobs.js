// Attachments. A call can read those of the messages in its view, and those that it stored itself.

import * as host from "#host/blobs";
import { u64 } from "#u64";

import { ask } from "./errors.js";
import { joined } from "./files.js";
import { toBytes } from "./utf8.js";
import { blobFrom } from "./wire.js";

const PAGE = 128 * 1024;

/** Returns the whole attachment; with `offset` or `length`, a part of it. */
export function read({ sha256 }, { offset = 0, length = Infinity } = {}) {
  const pages = [];
  let size = 0;
  while (size < length) {
    const count = Math.min(PAGE, length - size);
    const page = ask("blobs", () => host.read(sha256, u64(offset + size), count));
    if (page.length === 0) break;
    pages.push(page);
    size += page.length;
  }
  return joined(pages, size);
}

/** Stores bytes, and returns a blob for an outcome or a reply. */
export function put(data, mediaType, name) {
  return blobFrom(ask("blobs", () => host.put(toBytes(data), mediaType, name)));
}
