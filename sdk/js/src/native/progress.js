// Progress of a test.

import { host } from "./current.js";

export const report = (done, total, message) => host().progress?.push({ done, total, message });
