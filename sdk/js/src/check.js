// Checks values against a JSON Schema. The host does so before each call too, with every keyword;
// this check makes native tests fail where the host would, and fills in defaults.

import { InvalidArguments } from "./errors.js";

/** Returns the value with its defaults. Throws `InvalidArguments` with the path of the field. */
export function checked(schema, value) {
  const problems = [];
  const result = check({ root: schema, problems }, schema, value, "");
  if (problems.length > 0) throw new InvalidArguments(problems[0]);
  return result;
}

function check(state, schema, value, path) {
  if (schema === true) return value;
  if (schema === false) return fail(state, path, "is not allowed", value);
  if (schema.$ref !== undefined)
    value = check(state, resolved(state.root, schema.$ref), value, path);
  if (schema.type !== undefined && ![schema.type].flat().some((type) => isOf(type, value))) {
    return fail(state, path, `must be ${article([schema.type].flat().join(" or "))}`, value);
  }
  if (schema.const !== undefined && !equal(schema.const, value)) {
    return fail(state, path, `must be ${JSON.stringify(schema.const)}`, value);
  }
  if (schema.enum !== undefined && !schema.enum.some((one) => equal(one, value))) {
    const choices = schema.enum.map((one) => JSON.stringify(one)).join(", ");
    return fail(state, path, `must be one of ${choices}`, value);
  }
  if (typeof value === "string") text(state, schema, value, path);
  if (typeof value === "number") number(state, schema, value, path);
  if (Array.isArray(value)) value = array(state, schema, value, path);
  else if (isOf("object", value)) value = object(state, schema, value, path);
  for (const part of schema.allOf ?? []) value = check(state, part, value, path);
  if (schema.anyOf) value = choice(state, schema.anyOf, value, path);
  if (schema.oneOf) value = choice(state, schema.oneOf, value, path);
  return value;
}

function fail({ problems }, path, problem, value) {
  problems.push(path ? `${path}: ${problem}` : `the arguments: ${problem}`);
  return value;
}

function text(state, schema, value, path) {
  const length = [...value].length;
  if (length < (schema.minLength ?? 0)) {
    fail(state, path, `must have at least ${schema.minLength} characters`);
  }
  if (length > (schema.maxLength ?? Infinity)) {
    fail(state, path, `must have at most ${schema.maxLength} characters`);
  }
  if (schema.pattern !== undefined && !new RegExp(schema.pattern, "u").test(value)) {
    fail(state, path, `must match ${schema.pattern}`);
  }
}

function number(state, schema, value, path) {
  if (value < (schema.minimum ?? -Infinity))
    fail(state, path, `must be at least ${schema.minimum}`);
  if (value > (schema.maximum ?? Infinity)) fail(state, path, `must be at most ${schema.maximum}`);
  if (value <= (schema.exclusiveMinimum ?? -Infinity)) {
    fail(state, path, `must be above ${schema.exclusiveMinimum}`);
  }
  if (value >= (schema.exclusiveMaximum ?? Infinity)) {
    fail(state, path, `must be below ${schema.exclusiveMaximum}`);
  }
  if (schema.multipleOf !== undefined && !Number.isInteger(value / schema.multipleOf)) {
    fail(state, path, `must be a multiple of ${schema.multipleOf}`);
  }
}

function array(state, schema, value, path) {
  if (value.length < (schema.minItems ?? 0)) {
    fail(state, path, `must have at least ${schema.minItems} items`);
  }
  if (value.length > (schema.maxItems ?? Infinity)) {
    fail(state, path, `must have at most ${schema.maxItems} items`);
  }
  if (
    schema.uniqueItems &&
    value.some((one, n) => value.slice(0, n).some((other) => equal(one, other)))
  ) {
    fail(state, path, "must not have equal items");
  }
  const prefix = schema.prefixItems ?? [];
  return value.map((item, n) => {
    const itemSchema = prefix[n] ?? schema.items;
    return itemSchema === undefined ? item : check(state, itemSchema, item, `${path}[${n}]`);
  });
}

function object(state, schema, value, path) {
  const at = (name) => (path ? `${path}.${name}` : name);
  const properties = schema.properties ?? {};
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name)) fail(state, at(name), "is missing");
  }
  const result = {};
  for (const [name, one] of Object.entries(value)) {
    const known = Object.hasOwn(properties, name);
    const fieldSchema = known ? properties[name] : schema.additionalProperties;
    if (!known && fieldSchema === false) {
      fail(state, at(name), "there is no such argument");
    } else {
      result[name] = fieldSchema === undefined ? one : check(state, fieldSchema, one, at(name));
    }
  }
  for (const [name, field] of Object.entries(properties)) {
    if (!Object.hasOwn(value, name) && field.default !== undefined) {
      result[name] = structuredCopy(field.default);
    }
  }
  return result;
}

/** Returns the value as the first schema that fits it reads it. */
function choice(state, schemas, value, path) {
  const attempts = schemas.map((schema) => {
    const problems = [];
    return { problems, value: check({ ...state, problems }, schema, value, path) };
  });
  const fitting = attempts.find(({ problems }) => problems.length === 0);
  if (fitting) return fitting.value;
  state.problems.push(attempts.map(({ problems }) => problems[0]).join(", or "));
  return value;
}

function isOf(type, value) {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    case "number":
      return typeof value === "number" && Number.isFinite(value);
    default:
      return typeof value === type;
  }
}

function resolved(root, reference) {
  if (!reference.startsWith("#")) throw new Error(`the schema's $ref ${reference} is not local`);
  const keys = reference.slice(1).split("/").slice(1);
  const unescaped = keys.map((key) =>
    decodeURIComponent(key).replace(/~1/g, "/").replace(/~0/g, "~"),
  );
  const found = unescaped.reduce((schema, key) => schema?.[key], root);
  if (found === undefined) throw new Error(`the schema's $ref ${reference} leads to nothing`);
  return found;
}

function equal(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null)
    return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && equal(one[key], other[key]))
  );
}

/** A default belongs to the definition, and the plugin may change its arguments. */
function structuredCopy(value) {
  return JSON.parse(JSON.stringify(value));
}

function article(noun) {
  return /^[aeio]/.test(noun) ? `an ${noun}` : noun === "null" ? noun : `a ${noun}`;
}
