// JSON in the text of a model, which puts words and code blocks around it.

import { InvalidArguments } from "../errors.js";
import { isObject } from "./fields.js";

/** Places in a text at which JSON is looked for. */
const PLACES = 32;
/** The nesting of JSON, as in the host. */
const DEPTH = 127;

/** Returns the first object, or list of objects, in a text. What follows is ignored. */
export function valueIn(text) {
  let problem;
  for (const start of placesIn(text)) {
    try {
      const value = JSON.parse(text.slice(start, endOf(text, start)));
      check(value);
      if (isForm(value)) return value;
    } catch (error) {
      problem ??= error.message;
    }
  }
  const what =
    problem === undefined
      ? "there is no JSON object in what was written"
      : `what was written is no JSON: ${problem}`;
  throw new InvalidArguments(`${what}. Write one JSON object and nothing else.`);
}

const placesIn = (text) => [...text.matchAll(/[{[]/g)].slice(0, PLACES).map(({ index }) => index);

/** Texts often contain `[1]`, so a list counts only if it holds objects. */
const isForm = (value) =>
  Array.isArray(value) ? value.length > 0 && value.every(isObject) : isObject(value);

/** Returns the end of the value at `start`: the bracket that closes its first one. */
function endOf(text, start) {
  let depth = 0;
  for (let at = start; at < text.length; at += 1) {
    const letter = text[at];
    if (letter === '"') at = endOfText(text, at);
    else if (letter === "{" || letter === "[") {
      depth += 1;
      if (depth > DEPTH) throw new Error("recursion limit exceeded");
    } else if (letter === "}" || letter === "]") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  throw new Error("it ends too early");
}

function endOfText(text, start) {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') return at;
  }
  return text.length;
}

/** Refuses what the host refuses: half of a surrogate pair, and a number beyond those of JSON. */
function check(value) {
  if (typeof value === "string" && !value.isWellFormed()) throw new Error("lone surrogate in text");
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error("number out of range");
  if (value === null || typeof value !== "object") return;
  for (const [key, one] of Object.entries(value)) {
    check(key);
    check(one);
  }
}
