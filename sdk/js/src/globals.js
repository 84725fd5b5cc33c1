// Globals of a component that its engine lacks, or that must write to the plugin's log.

import { log } from "#host/log";

import { formatted } from "./format.js";
import { Utf8Decoder, Utf8Encoder } from "./utf8.js";

const at = (level) => (...values) => log(level, formatted(values));

globalThis.console = {
  trace: at("trace"),
  debug: at("debug"),
  log: at("info"),
  info: at("info"),
  warn: at("warn"),
  error: at("error"),
  assert: (holds, ...values) => {
    if (!holds) log("error", formatted(["assertion failed", ...values]));
  },
};
globalThis.TextEncoder ??= Utf8Encoder;
globalThis.TextDecoder ??= Utf8Decoder;
