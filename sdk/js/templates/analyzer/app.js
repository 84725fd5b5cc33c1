// <NAME>: rates the risk of actions before the host carries them out.

import { analyzer, high, low, medium } from "@conclave/sdk";

const deletes = ({ name }) => /\.(forget|delete)$/.test(name);

export const careful = analyzer({
  // An exception counts as a high risk.
  assess({ tag, val }) {
    if (tag === "run" && val.command.includes("rm ")) return high("it deletes files");
    if (tag === "reply" && val.toolCalls.some(deletes)) return high("it deletes something");
    return tag === "run" || tag === "write" ? medium("it changes something") : low();
  },
});
