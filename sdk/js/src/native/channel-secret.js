// The proofs that a test calls valid.

import { host } from "./current.js";

export function verify({ tag, val }) {
  const same = (one, other) => String(one) === String(other);
  const isValid = (proof) =>
    tag === "token"
      ? proof.token === val
      : proof.data !== undefined &&
        same(proof.data, val.data) &&
        same(proof.signature, val.signature);
  return host().grants.proofs?.some(isValid) ?? false;
}
