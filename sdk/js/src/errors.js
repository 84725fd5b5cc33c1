// Errors of plugins, and the conversion of what an import throws.

/** An error that the host returned from an import; `code` is its case in the contract. */
export class HostError extends Error {
  constructor(message, code, value) {
    super(message);
    this.name = "HostError";
    this.code = code;
    this.value = value;
  }
}

/** An access that the host denied. */
export class Denied extends HostError {
  constructor(denial) {
    const { capability, target, detail } = denial;
    super(detail || `${capability} was refused for "${target}"`, "denied", denial);
    this.name = "Denied";
    this.denial = { capability, target, detail };
  }
}

/** A service that is unavailable; the request may be sent again. */
export class Unavailable extends HostError {
  constructor(retryAfterMs, message) {
    const after = retryAfterMs === undefined ? "" : `; try again after ${retryAfterMs} ms`;
    super(`${message ?? "the service is unavailable"}${after}`, "unavailable", retryAfterMs);
    this.name = "Unavailable";
    this.retryAfterMs = retryAfterMs;
  }
}

/** A wrong argument. The text names it, and the model gets the text. */
export class InvalidArguments extends Error {
  constructor(message) {
    super(message);
    this.name = "InvalidArguments";
  }
}

/** The texts of the cases that every interface words alike. */
const REASONS = {
  "not-found": () => "there is no such file or directory",
  "not-a-file": () => "it is a directory, not a file",
  "not-a-directory": () => "it is a file, not a directory",
  "quota-exceeded": (limit) => `the limit of ${limit} is used up`,
  "too-large": (limit) => `it is larger than the limit of ${limit} bytes`,
  unknown: () => "this call has no access to a blob with this hash",
  "budget-exhausted": (limit) => `too little of ${limit} is left for this request`,
  "unknown-model": (name) => `the config has no model named ${name}`,
  "context-too-long": (tokens) => `the prompt does not fit into ${tokens} tokens`,
  "invalid-command": (reason) => `the command cannot be run: ${reason}`,
  "invalid-request": (reason) => `the request is malformed: ${reason}`,
  "limit-exceeded": (limit) => `a limit of the grant was exceeded: ${limit}`,
  "timed-out": () => "there was no response in time",
  other: (text) => text,
};

/**
 * Returns the result of a call of the host. `what` names the call in the error that it throws.
 */
export function ask(what, work) {
  try {
    return work();
  } catch (thrown) {
    throw fromHost(what, thrown);
  }
}

/** Returns the error for what an import threw; another value is returned as it is. */
export function fromHost(what, thrown) {
  // Both engines throw an error with the contract's value in `payload`.
  const payload = thrown?.payload;
  if (payload === undefined || payload === null) return thrown;
  if (payload.capability !== undefined) return new Denied(payload);
  const { tag } = payload;
  const value = typeof payload.val === "bigint" ? Number(payload.val) : (payload.val ?? undefined);
  if (tag === "denied") return new Denied(value);
  if (tag === "unavailable") return new Unavailable(value, `${what}: the service is unavailable`);
  // A tool's own words, or the host's about the call, with the name of the tool in them.
  if (tag === "failed") return new HostError(value, tag);
  const reason = REASONS[tag]?.(value) ?? tag;
  return new HostError(`${what}: ${reason}`, tag, value);
}

/** Returns an error's text on one line, for a model. */
export function oneLine(error) {
  if (!(error instanceof Error)) return firstLine(String(error));
  const plain = error.name === "Error" || error instanceof HostError;
  const text =
    plain || error instanceof InvalidArguments ? error.message : `${error.name}: ${error.message}`;
  return firstLine(text) || error.name;
}

function firstLine(text) {
  return text.split("\n", 1)[0].trim();
}
