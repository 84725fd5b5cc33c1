// Secrets that the operator bound to hosts. A plugin gets a placeholder, never the value.

import * as host from "#host/secrets";

import { ask } from "./errors.js";
import { wellFormed } from "./well_formed.js";

export const placeholder = (name) => ask("secrets", () => host.placeholder(wellFormed(name)));
