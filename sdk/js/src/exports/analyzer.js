// The interface `security-analyzer`.

import { settled } from "../kind.js";
import { View } from "../view.js";
import { actionFrom } from "../wire.js";
import { boundary, expect } from "./boundary.js";

export const securityAnalyzer = ({ analyzer: [one] }) => ({
  assess: (action, thought) =>
    boundary(() => {
      const verdict = settled(
        "analyzer: assess",
        one.assess(actionFrom(action), thought, new View()),
      );
      const isFit = ["low", "medium", "high"].includes(verdict?.risk);
      expect("analyzer: assess", isFit, "low(reason), medium(reason) or high(reason)");
      return { risk: verdict.risk, reason: String(verdict.reason ?? "") };
    }),
});
