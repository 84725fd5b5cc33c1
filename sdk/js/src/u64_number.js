// QuickJS and native tests take 64-bit integers as numbers. A component for StarlingMonkey has
// `u64_bigint.js` in place of this file.

/** Returns an integer for the contract. Throws here, where the engine would end the call. */
export function u64(number) {
  if (!Number.isSafeInteger(number)) throw new RangeError(`${number} is not an integer`);
  return number;
}
