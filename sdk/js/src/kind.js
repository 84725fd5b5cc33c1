// The mark that a plugin's exports carry, by which the build finds them.

/** The key of an export's kind, such as `tool`. Registered, because a test may load two copies. */
export const KIND = Symbol.for("conclave.kind");

const AsyncFunction = (async () => {}).constructor;

/**
 * Returns the definition as an object that is marked with its kind. A class is instantiated.
 * Throws if one of the functions in `required` is missing, or any of the functions is async.
 */
export function define(kind, definition, required, optional = []) {
  const object = typeof definition === "function" ? new definition() : definition;
  if (object === null || typeof object !== "object") {
    throw new TypeError(`${kind}: pass an object or a class with ${list(required)}`);
  }
  for (const name of required) {
    if (typeof object[name] !== "function") {
      throw new TypeError(`${kind}: the function ${name} is missing`);
    }
  }
  for (const name of [...required, ...optional]) checkSync(`${kind}: ${name}`, object[name]);
  Object.defineProperty(object, KIND, { value: kind });
  return object;
}

/** Throws if `work` is async: no event loop runs in a call of a component. */
export function checkSync(what, work) {
  if (work instanceof AsyncFunction) {
    throw new TypeError(
      `${what} is async; the host's functions return their results at once, so remove async and await`,
    );
  }
}

/** Returns a result, and throws if it is a promise. */
export function settled(what, result) {
  if (typeof result?.then === "function") {
    throw new TypeError(`${what} returned a promise; return its value, because no event loop runs`);
  }
  return result;
}

function list(names) {
  return names.map((name) => `\`${name}\``).join(", ");
}
