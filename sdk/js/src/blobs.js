// Attachments. A call can read those of the messages in its view, and those that it stored itself.

import * as host from "#host/blobs";
import { u64 } from "#u64";

import { ask } from "./errors.js";
import { readPages } from "./pages.js";
import { toBytes } from "./utf8.js";
import { wellFormed } from "./well_formed.js";
import { blobFrom } from "./wire.js";

/** Returns the whole attachment; with `offset` or `length`, a part of it. */
export const read = ({ sha256 }, part) =>
  readPages((offset, length) => ask("blobs", () => host.read(sha256, u64(offset), length)), part);

/** Stores bytes, and returns a blob for an outcome or a reply. */
export function put(data, mediaType, name) {
  const texts = wellFormed([mediaType, name]);
  return blobFrom(ask("blobs", () => host.put(toBytes(data), ...texts)));
}
