// Log lines of the plugin. `console` writes the same log.

import { log as write } from "#host/log";

import { formatted } from "./format.js";

const at = (level) => (...values) => write(level, formatted(values));

export const trace = at("trace");
export const debug = at("debug");
export const info = at("info");
export const warn = at("warn");
export const error = at("error");
