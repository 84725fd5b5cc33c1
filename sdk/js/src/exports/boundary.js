// The boundary between a plugin's functions and the contract: what a function throws becomes the
// contract's error.

import { Denied, InvalidArguments, Unavailable, oneLine } from "../errors.js";
import { writeLog } from "../format.js";
import { wellFormed } from "../well_formed.js";

/** Returns the result of `work`. Throws the contract's error, as `toError` words it. */
export function boundary(work, toError = deniedOrOther) {
  try {
    return wellFormed(work());
  } catch (error) {
    throw wellFormed(contractError(error, toError));
  }
}

function contractError(error, toError) {
  try {
    return toError(error);
  } catch {
    // A getter of the error threw; what leaves an export otherwise would be a trap.
    return { tag: "other", val: "the plugin threw an error whose text cannot be read" };
  }
}

export function deniedOrOther(error) {
  return error instanceof Denied ? denied(error) : other(error);
}

export const denied = ({ denial }) => ({ tag: "denied", val: denial });

/** Returns the error's text on one line. Its stack is for the plugin's log. */
export function other(error) {
  const expected = error instanceof InvalidArguments || error instanceof Unavailable;
  if (error instanceof Error && !expected) writeLog("error", error);
  return { tag: "other", val: oneLine(error) };
}

/** Throws unless a function returned a value of the form that `hint` names. */
export function expect(what, isFit, hint) {
  if (!isFit) throw new TypeError(`${what}: return ${hint}`);
}
