// A scratch in memory, with the default limit of a host.

import { fails, host } from "./current.js";

const LIMIT = 64 * 1024;

export const get = () => host().scratch;

export function set(value) {
  if (value.length > LIMIT) fails({ tag: "too-large", val: LIMIT });
  host().scratch = value;
}
