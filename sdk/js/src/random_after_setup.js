// Runs after the plugin's modules. A number that one of them drew at its top level has seeded the
// generator during the build, and the component would store that seed for all its calls.

import { random } from "./random.js";

random.forget();
