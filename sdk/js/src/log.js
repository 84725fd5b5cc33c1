// Log lines of the plugin. `console` writes the same log.

import { writeLog } from "./format.js";

export const trace = (...values) => writeLog("trace", ...values);
export const debug = (...values) => writeLog("debug", ...values);
export const info = (...values) => writeLog("info", ...values);
export const warn = (...values) => writeLog("warn", ...values);
export const error = (...values) => writeLog("error", ...values);
