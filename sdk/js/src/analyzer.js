// Security analyzers.

import { define } from "./kind.js";

/** Returns an analyzer: `assess(action, thought, view)` returns `low()`, `medium()` or `high()`. */
export function analyzer(definition) {
  return define("analyzer", definition, ["assess"]);
}

export const low = (reason = "") => ({ risk: "low", reason });

export const medium = (reason = "") => ({ risk: "medium", reason });

export const high = (reason = "") => ({ risk: "high", reason });
