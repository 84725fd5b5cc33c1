// The names of parts that a test writes.

/** Throws if an object has another part than these. */
export function known(what, object, names) {
  const unknown = Object.keys(object).find((key) => !names.includes(key));
  if (unknown) throw new TypeError(`${what}: there is no part ${unknown}`);
}
