// `@conclave/sdk`. The documentation of each name is in `types/index.d.ts`.

export { Denied, HostError, InvalidArguments, Unavailable } from "./errors.js";
export { s } from "./schema.js";
export { tool, toolset } from "./tool.js";
export { Outcome } from "./outcome.js";
export { agent, responder } from "./agent.js";
export { callTool, callTools, finish, reject, replyWith, say, withText } from "./turn.js";
export { observationFromJson, observationToJson } from "./codec/observations.js";
export { valueIn } from "./codec/text.js";
export { turnFromJson, turnFromValue, turnToJson } from "./codec/turns.js";
export { analyzer, high, low, medium } from "./analyzer.js";
export { condenser, LEFT_OUT, shortened } from "./condenser.js";
export { allow, block, gate, modify } from "./gate.js";
export { judge } from "./judge.js";
export { memory } from "./memory.js";
export { eventKey, observer } from "./observer.js";
export {
  answerWith,
  channel,
  delivered,
  received,
  refused,
  retry,
  unknown,
  verifyHmac,
  verifyToken,
} from "./channel.js";
export { simulatedUser } from "./simulated_user.js";
export { strategy } from "./strategy.js";
export { fetch, secret } from "./fetch.js";

export * as act from "./act.js";
export * as background from "./background.js";
export * as blobs from "./blobs.js";
export * as call from "./call.js";
export * as config from "./config.js";
export * as delivery from "./delivery.js";
export * as exec from "./exec.js";
export * as files from "./files.js";
export * as history from "./conversation.js";
export * as kv from "./kv.js";
export * as log from "./log.js";
export * as model from "./model.js";
export * as progress from "./progress.js";
export * as scratch from "./scratch.js";
export * as secrets from "./secrets.js";
export * as toolbox from "./toolbox.js";
