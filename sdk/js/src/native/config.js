// The settings that a test has written.

import { host } from "./current.js";

export const get = () => JSON.stringify(host().config ?? {});
