// <NAME>: posts messages to a service, and reads the requests that it signs.

import {
  channel,
  config,
  delivered,
  fetch,
  received,
  refused,
  retry,
  s,
  unknown,
  verifyHmac,
} from "@conclave/sdk";

const settings = s.object({ url: s.string() });
/** The seconds by which the time of a request may differ: an older one may be a repetition. */
const TOLERANCE = 300;

export const people = channel({
  // An exception leaves the outcome unknown, if the request was sent.
  send({ id, conversation, text }) {
    const { status } = fetch(config.get(settings).url, {
      headers: { "Idempotency-Key": id },
      json: { chat: conversation, text },
    });
    const answered = `the service answered ${status}`;
    if (status === 429 || status === 503) return retry(answered);
    if (status < 300) return delivered();
    return status < 500 ? refused(answered) : unknown(answered);
  },
  received(request) {
    if (!isSigned(request)) return refused("it is not signed by the service");
    const { id, from, chat, text } = JSON.parse(new TextDecoder().decode(request.body));
    return received([{ id, sender: from, conversation: chat, text }]);
  },
});

/** Returns whether the service has signed `TIME:BODY`, a short time ago. */
function isSigned({ headers, body, time }) {
  const { "x-time": at = "", "x-signature": signature = "" } = Object.fromEntries(headers);
  if (!/^\d+$/.test(at) || Math.abs(Number(at) - time / 1000) > TOLERANCE) return false;
  const bytes = signature.match(/../g) ?? [];
  const prefix = new TextEncoder().encode(`${at}:`);
  return verifyHmac(
    Uint8Array.of(...prefix, ...body),
    Uint8Array.from(bytes, (byte) => parseInt(byte, 16)),
  );
}
