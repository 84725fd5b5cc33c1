// A native test passes its task as the view: `task(…)` of @conclave/sdk/testing.

import { absent } from "./absent.js";

export const [
  taskName,
  inputs,
  pending,
  historyLength,
  history,
  sinceLastStep,
  latestUserMessage,
  plan,
  currentPlanNode,
  outputs,
  lastError,
  tools,
  peers,
  remaining,
  metrics,
  delegateLevel,
  iteration,
] = Array(17).fill(absent("task(…)"));
