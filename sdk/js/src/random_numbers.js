// A generator of random numbers (sfc32), for an engine whose own is seeded when it is built.

/**
 * Returns a function like `Math.random`. `seed` returns two numbers below 2^64; it is called before
 * the first number, and before the first one after `random.forget()`.
 */
export function randomNumbers(seed) {
  let words;
  const next = () => {
    let [a, b, c, d] = words;
    const sum = (a + b + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    words = [a, b, c, d];
    return sum >>> 0;
  };
  const random = () => {
    if (words === undefined) {
      words = seed().flatMap((number) => [(number % 2 ** 32) | 0, (number / 2 ** 32) | 0]);
      // The first numbers are close for seeds that are close.
      for (let n = 0; n < 12; n++) next();
    }
    return ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
  };
  random.forget = () => {
    words = undefined;
  };
  return random;
}
