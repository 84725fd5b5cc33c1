// A private store of keys and values that outlives a run.

import * as host from "#host/kv";

import { ask } from "./errors.js";
import { toBytes, toText } from "./utf8.js";
import { wellFormed } from "./well_formed.js";
import { json, optional } from "./wire.js";

/** Keys per call of the host. */
const PAGE = 256;

const of = (key, work) => ask(`kv ${JSON.stringify(key)}`, work);

export const get = (key) => optional(of(key, () => host.get(wellFormed(key))));

export const getText = (key) =>
  optional(get(key), (bytes) => toText(`kv ${JSON.stringify(key)}`, bytes));

export const getJson = (key) => optional(getText(key), JSON.parse);

export const set = (key, data) => of(key, () => host.set(wellFormed(key), toBytes(data)));

export const setJson = (key, value) => set(key, json(value));

export const remove = (key) => of(key, () => host.delete(wellFormed(key)));

/** Returns all keys with this prefix, in byte order. */
export function keys(prefix = "") {
  const all = [];
  for (;;) {
    const page = of(prefix, () => host.keys(wellFormed(prefix), all.at(-1), PAGE));
    if (page.length === 0) return all;
    all.push(...page);
  }
}
