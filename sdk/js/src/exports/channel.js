// The interface `channel`.

import { u64 } from "#u64";

import { settled } from "../kind.js";
import { optional } from "../wire.js";
import { boundary, expect } from "./boundary.js";

export const channel = ({ channel: [one] }) => ({
  send: ({ conversation, ...message }) =>
    boundary(() => {
      const given = { ...message, conversation: optional(conversation) };
      const delivery = settled("channel: send", one.send(given));
      const isFit = ["delivered", "retry", "refused", "unknown"].includes(delivery?.tag);
      expect(
        "channel: send",
        isFit,
        "delivered(), retry(reason), refused(reason) or unknown(reason)",
      );
      return deliveryTo(delivery);
    }),
  received: ({ time, ...request }) =>
    boundary(() => {
      const reception = settled(
        "channel: received",
        one.received({ ...request, time: Number(time) }),
      );
      const isFit = ["messages", "answer", "refused"].includes(reception?.tag);
      expect("channel: received", isFit, "received(messages), answerWith(body) or refused(reason)");
      return receptionTo(reception);
    }),
});

function deliveryTo({ tag, val }) {
  if (tag === "delivered") return { tag, val: optional(val, String) };
  if (tag !== "retry") return { tag, val: String(val) };
  return { tag, val: { afterMs: optional(val.afterMs, u64), reason: String(val.reason) } };
}

function receptionTo({ tag, val }) {
  if (tag === "refused") return { tag, val: String(val) };
  if (tag === "answer") return { tag, val: { bodyType: val.bodyType, body: String(val.body) } };
  return { tag, val: val.map(messageTo) };
}

const messageTo = ({ id, sender, conversation, text }) => ({
  id: String(id),
  sender: String(sender),
  conversation: String(conversation),
  text: String(text),
});
