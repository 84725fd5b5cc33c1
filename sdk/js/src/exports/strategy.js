// The interface `delivery-strategy`.

import { Context } from "../context.js";
import { settled } from "../kind.js";
import { u64 } from "#u64";
import { optional } from "../wire.js";
import { boundary, expect } from "./boundary.js";

const TAGS = ["deliver", "move-to-inbox", "wait", "give-up"];

export const deliveryStrategy = ({ strategy: [one] }) => ({
  decide: (wake) => boundary(() => decisionsOf(one, wakeFrom(wake)).map(decisionTo)),
});

/** Asks a strategy, and returns its decisions. Throws if they are none. */
function decisionsOf(strategy, wake) {
  const decisions = settled("strategy: decide", strategy.decide(wake, new Context()));
  const isFit = Array.isArray(decisions) && decisions.every((each) => TAGS.includes(each?.tag));
  expect("strategy: decide", isFit, "a list of decisions, such as [delivery.deliver(ids)]");
  return decisions;
}

const wakeFrom = ({ tag, val }) => (optional(val) === undefined ? { tag } : { tag, val });

const decisionTo = ({ tag, val }) =>
  tag === "wait"
    ? { tag, val: { channel: val.channel, timeoutMs: u64(val.timeoutMs) } }
    : { tag, val };
