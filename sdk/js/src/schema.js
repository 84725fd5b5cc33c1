// A builder of JSON Schemas, whose TypeScript type is inferred for `run` (`types/index.d.ts`).

class Builder {
  constructor(schema, isOptional = false) {
    this.schema = schema;
    this.isOptional = isOptional;
    Object.freeze(this);
  }

  optional() {
    return new Builder(this.schema, true);
  }

  default(value) {
    return new Builder({ ...this.schema, default: value }, true);
  }

  nullable() {
    const { description, ...schema } = this.schema;
    return new Builder(
      described({ anyOf: [schema, { type: "null" }] }, description),
      this.isOptional,
    );
  }

  describe(description) {
    return new Builder({ ...this.schema, description }, this.isOptional);
  }

  toJSON() {
    return this.schema;
  }
}

const described = (schema, description) =>
  description === undefined ? schema : { ...schema, description };

const build = (schema, description, keywords) =>
  new Builder(described({ ...schema, ...keywords }, description));

export const s = {
  string: (description, keywords) => build({ type: "string" }, description, keywords),
  number: (description, keywords) => build({ type: "number" }, description, keywords),
  integer: (description, keywords) => build({ type: "integer" }, description, keywords),
  boolean: (description) => build({ type: "boolean" }, description),
  enum: (values, description) => build({ enum: [...values] }, description),
  literal: (value, description) => build({ const: value }, description),
  any: (description) => build({}, description),
  array: (items, description, keywords) =>
    build({ type: "array", items: schemaOf(items) }, description, keywords),
  record: (values, description) =>
    build({ type: "object", additionalProperties: schemaOf(values) }, description),
  union: (choices, description) => build({ anyOf: choices.map(schemaOf) }, description),
  object: (fields, description) => {
    const entries = Object.entries(fields);
    const required = entries.filter(([, field]) => !field.isOptional).map(([name]) => name);
    const properties = Object.fromEntries(entries.map(([name, field]) => [name, schemaOf(field)]));
    return build(
      {
        type: "object",
        properties,
        ...(required.length > 0 && { required }),
        additionalProperties: false,
      },
      description,
    );
  },
};

/** Returns the JSON Schema of a builder; any other value is one already. */
export const schemaOf = (schema) => (schema instanceof Builder ? schema.schema : schema);
