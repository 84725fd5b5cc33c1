// Delivery strategies: when and where results of background tasks are reported.

import { define } from "./kind.js";

/** Returns a strategy: `decide(wake, context)` returns a list of decisions. */
export function strategy(definition) {
  return define("strategy", definition, ["decide"]);
}
