import assert from "node:assert/strict";
import { test } from "node:test";

import { fakeHost } from "@conclave/sdk/testing";

import { people } from "./app.js";

const url = "https://chat.example.org/messages";

test("what is known of a message follows from the answer", () => {
  const sent = (status) => {
    const host = fakeHost({ config: { url }, responses: { [url]: { status } } });
    return host.run(() => people.send({ id: "msg_1", conversation: "C1", text: "hello" })).tag;
  };
  assert.deepEqual([204, 429, 404, 500].map(sent), ["delivered", "retry", "refused", "unknown"]);
});

test("only a signed request has messages", () => {
  const body = new TextEncoder().encode('{"id":"m1","from":"ada","chat":"C1","text":"hello"}');
  const data = new TextEncoder().encode(`1700000000:${new TextDecoder().decode(body)}`);
  const host = fakeHost({ proofs: [{ data, signature: Uint8Array.of(0xab, 0xcd) }] });
  const received = (signature) => {
    const headers = [
      ["x-time", "1700000000"],
      ["x-signature", signature],
    ];
    return host.run(() => people.received({ headers, body, time: 1_700_000_000_000 })).tag;
  };
  assert.deepEqual(["abcd", "abce", ""].map(received), ["messages", "refused", "refused"]);
});
