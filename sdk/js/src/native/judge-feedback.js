// A native test calls the functions of its judge itself, and no ruling.

import { absent } from "./absent.js";

export const explain = absent("feedback(answer, view)");
