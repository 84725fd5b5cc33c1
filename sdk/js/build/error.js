// What is wrong with a plugin, for its author.

export class BuildError extends Error {
  /** `errors` are sentences: what is wrong, where, and the alternative. */
  constructor(errors) {
    super(errors.join("\n"));
    this.name = "BuildError";
    this.errors = errors;
  }
}
