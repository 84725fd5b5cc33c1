// Gates.

import { define } from "./kind.js";

/** Returns a gate: `check(input)` returns `allow()`, `modify(text)` or `block(reason)`. */
export function gate(definition) {
  return define("gate", definition, ["check"]);
}

export const allow = () => ({ tag: "allow" });

export const modify = (text) => ({ tag: "modify", val: text });

export const block = (reason) => ({ tag: "block", val: reason });
