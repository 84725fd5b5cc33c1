// Long-term memories.

import { define } from "./kind.js";

/** Returns a memory: `search(query, limit)` returns texts, best first. */
export function memory(definition) {
  return define("memory", definition, ["search"]);
}
