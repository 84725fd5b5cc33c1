// Events of a log in the fixed JSON form: reading the union of both eras, and writing one of them.
// An event has all fields that either era has. This knows nothing of the contract's actions.

import { InvalidArguments } from "../errors.js";
import { isObject, isWhole, listed, readField, short } from "./fields.js";
import { ACTIONS, ERAS, OBSERVATIONS, defaultsOf, isIn, namesIn, requiredOf } from "./forms.js";
import { message } from "./messages.js";

/** Returns an event with these fields, and the defaults of the others. */
export const action = (kind, fields = {}) => newEvent(true, kind, fields);

export const observation = (kind, fields = {}) => newEvent(false, kind, fields);

function newEvent(isAction, kind, fields) {
  const defaults = defaultsOf((isAction ? ACTIONS : OBSERVATIONS)[kind]);
  return { isAction, kind, fields: { ...defaults, ...fields } };
}

/** Returns whether a kind of action may carry a thought, so far as 2025-11 knows it. */
export function takesThought(kind) {
  const known = Object.hasOwn(ACTIONS, kind) ? ACTIONS[kind] : undefined;
  return !known || !isIn(known, "2025-11") || Object.hasOwn(known.fields, "thought");
}

/** Reads the union of both eras and our own kinds. The error names problem and remedy. */
export function readEvent(value) {
  if (!isObject(value)) {
    refuse(
      `An event must be an object with \`action\` or \`observation\`, and is ${short(value)}.`,
    );
  }
  let event;
  if (Object.hasOwn(value, "action")) event = readAction(value.action, value);
  else if (Object.hasOwn(value, "observation")) event = readObservation(value.observation, value);
  else {
    const names = listed(Object.keys(value).sort());
    refuse(`An event must have \`action\` or \`observation\`; this one has: ${names}.`);
  }
  checkEnvelope(value, event.isAction);
  return event;
}

/** Returns an event in the form of an era; a kind that it lacks has the fields of the other. */
export function writeEvent(event, era, { source, id } = {}) {
  if (!ERAS.includes(era)) throw new TypeError(`there is no era ${era}: ${ERAS.join(" or ")}`);
  const { isAction, kind, fields } = event;
  const form = {};
  if (id !== undefined) form.id = id;
  if (source !== undefined) form.source = source;
  form.message = message(event, era);
  const names = namesIn((isAction ? ACTIONS : OBSERVATIONS)[kind], era);
  const written = Object.fromEntries(names.map((name) => [name, fields[name]]));
  // 2025-11 requires the type; a recall of 2024-07 has none, and asked for knowledge.
  if (kind === "recall" && era === "2025-11") written.recall_type ??= "knowledge";
  if (isAction) return { ...form, action: kind, args: written };
  const { content, ...rest } = written;
  const extras = kind === "run" && era === "2024-07" ? extrasOf2024(fields) : rest;
  const observationForm = { ...form, observation: kind, content, extras };
  if (era === "2025-11" && (kind === "run" || kind === "run_ipython")) {
    observationForm.success = kind === "run_ipython" || fields.metadata.exit_code === 0;
  }
  return observationForm;
}

const extrasOf2024 = ({ command, metadata }) => ({
  command_id: metadata.pid,
  command,
  exit_code: metadata.exit_code,
});

function readAction(kind, { args = {} }) {
  const known = `Known are: ${listed(Object.keys(ACTIONS))}.`;
  if (typeof kind !== "string") {
    refuse(`\`action\` must be a string, and is ${short(kind)}. ${known}`);
  }
  if (!isObject(args)) {
    refuse(`\`args\` of action \`${kind}\` must be an object, and is ${short(args)}.`);
  }
  const values = withCurrentNames(args);
  if (!Object.hasOwn(ACTIONS, kind)) refuse(`Action \`${kind}\` does not exist. ${known}`);
  const fields = readFields("Action", kind, ACTIONS[kind], values);
  if (kind === "condensation") checkCondensation(fields);
  if (kind === "recall" && fields.recall_type === null && !Object.hasOwn(values, "query")) {
    refuse("Action `recall` needs `query` (2024-07) or `recall_type` (2025-11).");
  }
  return { isAction: true, kind, fields };
}

function readObservation(kind, { content = null, extras = {} }) {
  const known = `Known are: ${listed(Object.keys(OBSERVATIONS))}.`;
  if (typeof kind !== "string") {
    refuse(`\`observation\` must be a string, and is ${short(kind)}. ${known}`);
  }
  if (!isObject(extras)) {
    refuse(`\`extras\` of observation \`${kind}\` must be an object, and is ${short(extras)}.`);
  }
  const values = withMetadata(kind, extras);
  const type = values.recall_type ?? null;
  if (![null, "workspace_context", "knowledge"].includes(type)) {
    refuse(`\`recall_type\` must be workspace_context or knowledge, and is ${short(type)}.`);
  }
  if (!Object.hasOwn(OBSERVATIONS, kind)) {
    refuse(`Observation \`${kind}\` does not exist. ${known}`);
  }
  if (Object.hasOwn(values, "content")) {
    refuse(
      `Observation \`${kind}\` has \`content\` among its extras; it belongs at the top level.`,
    );
  }
  // Writers of 2025-11 add extras of their own to a command.
  const own = Object.entries(values).filter(
    ([name]) => kind !== "run" || Object.hasOwn(OBSERVATIONS.run.fields, name),
  );
  const all = { ...Object.fromEntries(own), content };
  const fields = readFields("Observation", kind, OBSERVATIONS[kind], all);
  if (
    kind === "recall" &&
    !Object.hasOwn(values, "memories") &&
    !Object.hasOwn(values, "recall_type")
  ) {
    refuse("Observation `recall` needs `memories` (2024-07) or `recall_type` (2025-11).");
  }
  return { isAction: false, kind, fields };
}

/** Reads the fields of a kind, after all unknown and missing names were looked for (O-006). */
function readFields(family, name, kind, values) {
  const required = requiredOf(kind);
  const unknown = Object.keys(values)
    .filter((field) => !Object.hasOwn(kind.fields, field))
    .sort();
  const missing = required.filter((field) => (values[field] ?? null) === null);
  const faults = [];
  if (unknown.length > 0) faults.push(`unknown: ${listed(unknown)}`);
  if (missing.length > 0) faults.push(`missing: ${listed(missing)}`);
  if (faults.length > 0) {
    const known = `Known are: ${listed(Object.keys(kind.fields))}`;
    refuse(
      `${family} \`${name}\` has wrong names (${faults.join("; ")}). ${known}; required are: ${listed(required)}.`,
    );
  }
  const fields = defaultsOf(kind);
  for (const [field, [type]] of Object.entries(kind.fields)) {
    if (!Object.hasOwn(values, field)) continue;
    const read = readField(name, field, type, values[field], fields[field]);
    if (read.problem !== undefined) refuse(`${family} ${read.problem}`);
    fields[field] = read.value;
  }
  return fields;
}

/** Returns the arguments with the names of today in place of old spellings (O-044). */
function withCurrentNames(args) {
  const { timestamp, keep_prompt, task_completed, is_confirmed, images_urls, ...current } = args;
  if ((is_confirmed ?? null) !== null) {
    const state = is_confirmed === true ? "confirmed" : "awaiting_confirmation";
    current.confirmation_state = typeof is_confirmed === "boolean" ? state : is_confirmed;
  }
  if (images_urls !== undefined) current.image_urls = images_urls;
  const { security_risk: risk = null } = current;
  if (risk !== null && ![-1, 0, 1, 2].includes(risk)) delete current.security_risk;
  return current;
}

/** Returns the extras with the exit code and the id of a command in its metadata. */
function withMetadata(kind, { formatted_output_and_error, ...extras }) {
  const current = { ...extras };
  if (kind === "run" && Object.hasOwn(current, "command_id") && !Object.hasOwn(current, "metadata"))
    // In 2024-07 the exit code is optional, and 0 by default.
    current.exit_code ??= 0;
  for (const [old, name] of [
    ["exit_code", "exit_code"],
    ["command_id", "pid"],
  ]) {
    if (!Object.hasOwn(current, old)) continue;
    const { [old]: value } = current;
    delete current[old];
    current.metadata = { ...(isObject(current.metadata) ? current.metadata : {}), [name]: value };
  }
  return current;
}

/** Checks O-042: the events are given in exactly one way, and a summary with its offset. */
function checkCondensation(fields) {
  const ends = [fields.forgotten_events_start_id, fields.forgotten_events_end_id];
  if ((fields.forgotten_event_ids === null) === ends.includes(null)) {
    refuse(
      "Action `condensation` must name what is forgotten in exactly one way: either `forgotten_event_ids`, or both `forgotten_events_start_id` and `forgotten_events_end_id`.",
    );
  }
  if ((fields.summary === null) !== (fields.summary_offset === null)) {
    refuse("Action `condensation` must give `summary` and `summary_offset` together, or neither.");
  }
}

function checkEnvelope(value, isAction) {
  const isText = (one) => typeof one === "string";
  const isNumber = (one) => typeof one === "number";
  const rules = [
    ["id", "a whole number", isWhole],
    ["cause", "a whole number", isWhole],
    ["timestamp", "an ISO-8601 date and time", isText],
    ["source", "a string", isText],
    ...(isAction ? [["timeout", "a number of seconds", isNumber]] : []),
  ];
  for (const [name, expected, isRight] of rules) {
    const one = value[name] ?? null;
    if (one !== null && !isRight(one)) {
      refuse(`\`${name}\` must be ${expected}, and is ${short(one)}.`);
    }
  }
}

function refuse(text) {
  throw new InvalidArguments(text);
}
