// StarlingMonkey takes 64-bit integers as BigInts only.

export const u64 = BigInt;
