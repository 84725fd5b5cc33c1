// Texts that leave the plugin. The contract's texts are UTF-8, which cannot express half of a
// surrogate pair, as `"😀".slice(0, 1)` is: the engines trap on one.

/** Returns a value of the contract with U+FFFD for each half of a pair, in all of its texts. */
export function wellFormed(value) {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(wellFormed);
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, wellFormed(one)]));
}

/** An escape in JSON; the digits of a surrogate are captured. */
const ESCAPE = /\\(?:u(d[89a-f][0-9a-f]{2})|.)/g;

/** Returns JSON text, `undefined` for a value that JSON does not have. */
export function wellFormedJson(value) {
  // Only halves of a pair are escaped, which the host's parser refuses.
  const text = JSON.stringify(value);
  return text?.includes("\\ud")
    ? text.replace(ESCAPE, (escape, half) => (half ? "\ufffd" : escape))
    : text;
}
