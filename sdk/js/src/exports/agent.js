// The interfaces `agent` and `responder`.

import { InvalidArguments } from "../errors.js";
import { settled } from "../kind.js";
import { View } from "../view.js";
import { turnTo } from "../wire.js";
import { boundary, deniedOrOther, expect } from "./boundary.js";

const isTurn = (turn) => turn?.action?.tag !== undefined;
const TURN = "a turn, such as finish(answer) or callTool(name, values)";

export const agent = ({ agent: [one] }) => ({
  step: () =>
    boundary(() => {
      const turn = settled("agent: step", one.step(new View()));
      expect("agent: step", isTurn(turn), TURN);
      return turnTo(turn);
    }, agentError),
});

export const responder = ({ agent = [], responder: own = [] }) => {
  const one = [...own, ...agent].find(({ respond }) => respond);
  return {
    respond: () =>
      boundary(() => {
        const turn = settled("responder: respond", one.respond(new View()));
        if (turn === undefined || turn === null) return undefined;
        expect("responder: respond", isTurn(turn), `${TURN}, or nothing`);
        return turnTo(turn);
      }, agentError),
  };
};

// In an agent a wrong argument means that the model's reply was invalid.
function agentError(error) {
  if (error instanceof InvalidArguments) return { tag: "malformed", val: error.message };
  return deniedOrOther(error);
}
