// A small private state: per task for agents and tools, per room for strategies. A change is stored
// with the call's answer, and lost if the call fails.

import * as host from "#host/scratch";

import { ask } from "./errors.js";
import { toBytes, toText } from "./utf8.js";
import { json } from "./wire.js";

export const bytes = () => host.get();

export const setBytes = (data) => ask("scratch", () => host.set(toBytes(data)));

/** Returns the stored value; `undefined` at first. */
export function get() {
  const stored = bytes();
  return stored.length === 0 ? undefined : JSON.parse(toText("scratch", stored));
}

export const set = (value) => setBytes(json(value));
