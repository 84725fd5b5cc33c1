// The interface `delivery-strategy`.

import { Context } from "../context.js";
import { decisionsOf } from "../decisions.js";
import { u64 } from "#u64";
import { optional } from "../wire.js";
import { boundary } from "./boundary.js";

export const deliveryStrategy = ({ strategy: [one] }) => ({
  decide: (wake) => boundary(() => decisionsOf(one, wakeFrom(wake), new Context()).map(decisionTo)),
});

const wakeFrom = ({ tag, val }) => (optional(val) === undefined ? { tag } : { tag, val });

const decisionTo = ({ tag, val }) =>
  tag === "wait"
    ? { tag, val: { channel: val.channel, timeoutMs: u64(val.timeoutMs) } }
    : { tag, val };
