// Channels.

import * as host from "#host/channel-secret";

import { define } from "./kind.js";
import { toBytes } from "./utf8.js";
import { wellFormed } from "./well_formed.js";

/** Returns a channel: `send(message)` makes an attempt, and `received(request)` reads a request. */
export function channel(definition) {
  return define("channel", definition, ["send", "received"]);
}

/** The answers of `send`. */
export const delivered = (remoteId) => ({ tag: "delivered", val: remoteId });
export const retry = (reason, afterMs) => ({ tag: "retry", val: { reason, afterMs } });
export const refused = (reason) => ({ tag: "refused", val: reason });
export const unknown = (reason) => ({ tag: "unknown", val: reason });

/** The answers of `received`, besides `refused`. */
export const received = (messages) => ({ tag: "messages", val: messages });
export const answerWith = (body, bodyType = "text") => ({ tag: "answer", val: { bodyType, body } });

/** Returns whether a signature is the HMAC-SHA256 of the data with the channel's secret. */
export const verifyHmac = (data, signature) =>
  host.verify({ tag: "hmac-sha256", val: { data: toBytes(data), signature } });

/** Returns whether a token is the channel's secret. */
export const verifyToken = (token) => host.verify({ tag: "token", val: wellFormed(token) });
