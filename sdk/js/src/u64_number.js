// QuickJS and native tests take 64-bit integers as numbers. A component for StarlingMonkey has
// `u64_bigint.js` in place of this file.

export const u64 = Number;
