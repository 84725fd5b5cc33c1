// The host of a native test. Without one nothing is granted: every import is denied, and none ends
// the test.

let current = { grants: {}, scratch: new Uint8Array() };

/** Returns what the imports read and change. */
export const host = () => current;

/** Replaces the host while `work` runs, and returns its result. */
export function withHost(one, work) {
  const before = current;
  current = one;
  try {
    return work();
  } finally {
    current = before;
  }
}

/** Throws an error as a component does: with the contract's value in `payload`. */
export function fails(payload) {
  throw Object.assign(new Error("an import failed (see error.payload)"), { payload });
}

export const denial = (capability, target) => ({
  capability,
  target,
  detail: `${capability} was refused for "${target}": no fakeHost() of this test grants it`,
});

export const denies = (capability, target) =>
  fails({ tag: "denied", val: denial(capability, target) });
