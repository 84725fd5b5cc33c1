// Responses that a test has written.

import { denies, host } from "./current.js";

export function send(request) {
  const answer = host().grants.responses?.get(request.url) ?? denies("fetch", request.url);
  host().requests.push(request);
  return {
    status: () => answer.status,
    headers: () => answer.headers,
    url: () => request.url,
    length: () => answer.body.length,
    read: (offset, length) => answer.body.slice(offset, offset + length),
  };
}
