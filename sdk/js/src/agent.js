// Agents and responders.

import { define } from "./kind.js";

export { View } from "./view.js";

/**
 * Returns an agent: `step(view)` returns a turn. With `respond(view)` it is a responder too. Each
 * call runs in a fresh instance, so an agent's memory is the history, `scratch` or `kv`.
 */
export function agent(definition) {
  return define("agent", definition, ["step"], ["respond"]);
}

/** Returns a responder: `respond(view)` returns a turn, or nothing for the next responder. */
export function responder(definition) {
  return define("responder", definition, ["respond"]);
}
