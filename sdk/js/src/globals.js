// Globals of a component that its engine lacks, or that must write to the plugin's log.

import { writeLog } from "./format.js";
import * as log from "./log.js";
import { Utf8Decoder, Utf8Encoder } from "./utf8.js";

globalThis.console = {
  ...log,
  log: log.info,
  assert: (holds, ...values) => {
    if (!holds) writeLog("error", "assertion failed", ...values);
  },
};
globalThis.TextEncoder ??= Utf8Encoder;
globalThis.TextDecoder ??= Utf8Decoder;
