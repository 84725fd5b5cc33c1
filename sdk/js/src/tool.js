// Tools: a function with a schema, or a set that is known only from the plugin's settings.

import { checked } from "./check.js";
import { KIND, checkSync, define, settled } from "./kind.js";
import { Outcome, outcomeOf } from "./outcome.js";
import { schemaOf } from "./schema.js";

const NAME = /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/;
const FIELDS = [
  "name",
  "description",
  "input",
  "output",
  "idempotent",
  "title",
  "resultTokens",
  "retainedTokens",
  "examples",
  "run",
];
const NO_ARGUMENTS = { type: "object", properties: {}, additionalProperties: false };

/** Returns a tool. Export it from the plugin's entry file. */
export function tool(definition) {
  const { name, run } = definition;
  const unknown = Object.keys(definition).find((key) => !FIELDS.includes(key));
  if (name === undefined) throw new TypeError("tool: the name is missing");
  if (typeof name !== "string" || !NAME.test(name)) {
    throw new TypeError(
      `tool: the name ${JSON.stringify(name)} must be lower-case words with \`_\` between`,
    );
  }
  if (unknown) throw new TypeError(`tool ${name}: there is no field ${unknown}`);
  if (typeof run !== "function") throw new TypeError(`tool ${name}: the function run is missing`);
  checkSync(`tool ${name}: run`, run);
  const spec = specOf(definition);
  // The host has checked the arguments of a call with the same schema, and leaves only the defaults
  // to the plugin. Checking them again would cost a component half of a small call.
  const hasDefaults = JSON.stringify(spec.input).includes('"default":');
  const outcome = (values) =>
    outcomeOf(
      settled(`tool ${name}: run`, run.call(definition, values)),
      spec.output !== undefined,
    );
  const made = {
    spec,
    run,
    call: (values) => outcome(checked(spec.input, values)),
    callChecked: (values) => outcome(hasDefaults ? checked(spec.input, values) : values),
  };
  Object.defineProperty(made, KIND, { value: "tool" });
  return made;
}

/** Returns a set of tools that `list` names when the plugin is loaded. */
export function toolset(definition) {
  return define("toolset", definition, ["list", "call"]);
}

/** Returns a tool's description with its schemas. Throws if a part of it is missing. */
export function specOf({
  name,
  description,
  input = NO_ARGUMENTS,
  output,
  idempotent = false,
  title,
  resultTokens,
  retainedTokens,
  examples,
}) {
  if (typeof description !== "string" || description.trim() === "") {
    throw new TypeError(`tool ${name}: the description for the model is missing`);
  }
  const inputSchema = schemaOf(input);
  if (inputSchema?.type !== "object") {
    throw new TypeError(
      `tool ${name}: input must be the schema of an object, such as s.object({ … })`,
    );
  }
  return {
    name,
    description,
    input: inputSchema,
    output: schemaOf(output),
    idempotent,
    title,
    resultTokens,
    retainedTokens,
    examples,
  };
}

/** Returns the outcome of a call of a toolset. */
export function callOf(set, name, values) {
  const result = settled("toolset: call", set.call(name, values));
  return result instanceof Outcome ? result : outcomeOf(result, false);
}
