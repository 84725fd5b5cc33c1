// A model whose replies a test has written.

import { denies, fails, host } from "./current.js";

export function complete(request) {
  const { replies } = host().grants;
  if (!replies) denies("model", request.model ?? "default");
  host().prompts.push(request);
  return replies.shift() ?? fails({ tag: "other", val: "the fake model has no further reply" });
}

/** A stream that has the whole text of the reply as its one piece. */
export function start(request) {
  const completion = complete(request);
  const pieces = [completion.content ?? ""];
  return { nextText: () => pieces.shift(), wait: () => completion };
}
