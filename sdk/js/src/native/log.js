// Log lines of a test: those of its host, or else on stderr.

import { host } from "./current.js";

export function log(level, message) {
  const { logs } = host();
  if (logs) logs.push({ level, message });
  else process.stderr.write(`${level}: ${message}\n`);
}
