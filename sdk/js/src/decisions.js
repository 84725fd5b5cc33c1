// A strategy's answer to a wake, as the host takes it.

import { expect } from "./exports/boundary.js";
import { settled } from "./kind.js";

const TAGS = ["deliver", "move-to-inbox", "wait", "give-up"];

/** Asks a strategy, and returns its decisions. Throws if they are none. */
export function decisionsOf(strategy, wake, context) {
  const decisions = settled("strategy: decide", strategy.decide(wake, context));
  const isFit = Array.isArray(decisions) && decisions.every((each) => TAGS.includes(each?.tag));
  expect("strategy: decide", isFit, "a list of decisions, such as [delivery.deliver(ids)]");
  return decisions;
}
