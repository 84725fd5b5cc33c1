// The plugin's own settings, from the operator's config.

import * as host from "#host/config";

import { checked } from "./check.js";
import { InvalidArguments } from "./errors.js";
import { schemaOf } from "./schema.js";

const UNITS = { ms: 1, s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** Returns the settings; with `schema`, checked and with its defaults. */
export function get(schema) {
  const settings = JSON.parse(host.get());
  if (schema === undefined) return settings;
  try {
    return checked(schemaOf(schema), settings);
  } catch (error) {
    // The operator wrote the settings, not the model.
    if (error instanceof InvalidArguments) throw new Error(`the plugin's config: ${error.message}`);
    throw error;
  }
}

/** Returns the milliseconds of a duration such as `"15 s"`. Throws if it has no unit. */
export function durationMs(text) {
  const [, number, unit] = /^\s*(\d+)\s*([a-z]*)\s*$/.exec(String(text)) ?? [];
  const factor = unit === "" && Number(number) === 0 ? 1 : UNITS[unit];
  const duration = Number(number) * factor;
  if (!Number.isSafeInteger(duration)) {
    throw new Error(
      `${JSON.stringify(text)} is no duration: write a number and ms, s, min, h or d, such as "15 s"`,
    );
  }
  return duration;
}
