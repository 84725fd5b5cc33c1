// Condensers.

import { define } from "./kind.js";

/** The replacement for a text that is left out. */
export const LEFT_OUT = "[left out]";

/**
 * Returns a condenser: `condense(reason, view)` returns what the next prompts may leave out, by
 * the indices of `view.history`; nothing leaves the history unchanged.
 */
export function condenser(definition) {
  return define("condenser", definition, ["condense"]);
}

/** Returns the text of an entry that keeps only its own beginning and end. */
export const shortened = (beginning, end = "") => `${beginning}…${end}`;
