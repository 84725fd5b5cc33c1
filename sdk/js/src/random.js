// QuickJS seeds `Math.random` when the component is built, so that each call would get the same
// numbers. The host's seed differs from call to call, and is the same in a replay.

import { insecureSeed } from "wasi:random/insecure-seed@0.2.12";

import { randomNumbers } from "./random_numbers.js";

export const random = randomNumbers(() => insecureSeed().map(Number));

Math.random = random;
