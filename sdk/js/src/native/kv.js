// Keys in memory.

import { denies, host } from "./current.js";

const keysFor = (key) => host().grants.kv ?? denies("kv", key);

export const get = (key) => keysFor(key).get(key);

export const set = (key, value) => void keysFor(key).set(key, value);

const remove = (key) => void keysFor(key).delete(key);
export { remove as delete };

export function keys(prefix, after, count) {
  const all = [...keysFor(prefix).keys()].filter((key) => key.startsWith(prefix));
  const inOrder = all.sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
  const start = after === undefined ? 0 : inOrder.indexOf(after) + 1;
  return inOrder.slice(start, start + count);
}
