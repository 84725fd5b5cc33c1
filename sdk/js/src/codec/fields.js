// The types of the fixed form's fields: how each is read, and its name in an error.

import { wellFormedJson } from "../well_formed.js";
import { UNKNOWN_COMMAND } from "./forms.js";

/** What a reader returns for a value of another type. */
const WRONG = Symbol("wrong");
/** Characters of a value in an error. */
const SHORT = 60;

export const isObject = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** Returns whether a value is a whole number of 64 bits. */
export const isWhole = (value) => Number.isInteger(value) && Math.abs(value) < 2 ** 63;

/** Returns the whole number in a text, if it is one. */
export const wholeIn = (text) => (/^[+-]?\d+$/.test(text.trim()) ? Number(text) : undefined);

const text = (value) => (typeof value === "string" ? value : WRONG);

// Models write flags as text; both spellings are unambiguous.
function flag(value) {
  const word = typeof value === "string" ? value.toLowerCase() : value;
  if (word === true || word === "true") return true;
  return word === false || word === "false" ? false : WRONG;
}

function whole(value) {
  const number = typeof value === "string" ? wholeIn(value) : value;
  return isWhole(number) ? number : WRONG;
}

const id = (value) => (typeof value === "string" || isWhole(value) ? value : WRONG);

const object = (value) => (isObject(value) ? value : WRONG);

const any = (value) => value;

const word =
  (...words) =>
  (value) =>
    words.includes(value) ? value : WRONG;

/** O-044: an invalid risk reads as an unknown one. */
const risk = (value) => ([0, 1, 2].includes(value) ? value : -1);

const list = (item) => (value) => {
  if (!Array.isArray(value)) return WRONG;
  const items = value.map(item);
  return items.includes(WRONG) ? WRONG : items;
};

const byName = (item) => (value) => {
  if (!isObject(value)) return WRONG;
  const items = Object.entries(value).map(([name, one]) => [name, item(one)]);
  return items.some(([, one]) => one === WRONG) ? WRONG : Object.fromEntries(items);
};

const orNull = (item) => (value) => (value === null ? null : item(value));

function delegate(value) {
  if (!isObject(value)) return WRONG;
  const { agent, inputs, ...others } = value;
  if (Object.keys(others).length > 0 || typeof agent !== "string") return WRONG;
  const read = object(inputs ?? {});
  return read === WRONG ? WRONG : { agent, inputs: read };
}

function knowledge(value) {
  const names = ["content", "name", "trigger"];
  if (!isObject(value) || Object.keys(value).sort().join() !== names.join()) return WRONG;
  return names.every((name) => typeof value[name] === "string") ? value : WRONG;
}

// Other names are ignored, because some writers of logs add their own.
function metadata(value) {
  if (!isObject(value)) return WRONG;
  const read = Object.entries(UNKNOWN_COMMAND).map(([name, otherwise]) => {
    const reader = otherwise === null ? orNull(text) : otherwise === -1 ? whole : text;
    return [name, Object.hasOwn(value, name) ? reader(value[name]) : otherwise];
  });
  return read.some(([, one]) => one === WRONG) ? WRONG : Object.fromEntries(read);
}

/** The name of each type in an error, and its reader. */
const TYPES = {
  text: ["a string", text],
  flag: ["true or false", flag],
  whole: ["a whole number", whole],
  id: ["an id: a whole number or a string", id],
  object: ["an object", object],
  list: ["a list", list(any)],
  texts: ["a list", list(text)],
  wholes: ["a list", list(whole)],
  delegates: ["a list", list(delegate)],
  knowledge: ["a list", list(knowledge)],
  "wholes by name": ["an object", byName(whole)],
  "texts by name": ["an object", byName(text)],
  confirmation: [
    "confirmed, rejected or awaiting_confirmation",
    word("confirmed", "rejected", "awaiting_confirmation"),
  ],
  recall: ["workspace_context or knowledge", word("workspace_context", "knowledge")],
  reader: ["default or oh_aci", word("default", "oh_aci")],
  editor: ["oh_aci or llm_based_edit", word("oh_aci", "llm_based_edit")],
  risk: ["-1, 0, 1 or 2", risk],
  metadata: ["an object with whole numbers `exit_code` and `pid`, and strings", metadata],
};

/**
 * Returns a field as `{ value }`, with the default for null; for another type `{ problem }`.
 */
export function readField(kind, name, type, value, otherwise) {
  const isOptional = type.startsWith("?");
  if (value === null && isOptional) return { value: null };
  const [expected, reader] = TYPES[isOptional ? type.slice(1) : type];
  const read = reader(value);
  if (read !== WRONG) return { value: read };
  if (value === null) return { value: otherwise };
  return { problem: `\`${name}\` of \`${kind}\` must be ${expected}, and is ${short(value)}.` };
}

/** Returns JSON on one line, with sorted keys. */
export const compact = (value) => wellFormedJson(sorted(value)) ?? "null";

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key])]));
}

/** Returns a value short enough for an error message. */
export function short(value) {
  const characters = [...compact(value)];
  return characters.length <= SHORT
    ? characters.join("")
    : `${characters.slice(0, SHORT).join("")}…`;
}

/** Returns a list of names for a sentence; `none` if it is empty. */
export const listed = (names) => names.join(", ") || "none";
