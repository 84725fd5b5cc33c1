// The kinds of a plugin, and the interfaces of the contract that they export.

/** By interface: the kinds that it serves, the name of its export, and its module in `src/exports`. */
export const INTERFACES = {
  tools: { kinds: ["tool", "toolset"], name: "tools", module: "tools.js" },
  agent: { kinds: ["agent"], name: "agent", module: "agent.js" },
  responder: { kinds: ["agent", "responder"], name: "responder", module: "agent.js" },
  "delivery-strategy": { kinds: ["strategy"], name: "deliveryStrategy", module: "strategy.js" },
  gate: { kinds: ["gate"], name: "gate", module: "gate.js" },
  observer: { kinds: ["observer"], name: "observer", module: "observer.js" },
  channel: { kinds: ["channel"], name: "channel", module: "channel.js" },
  condenser: { kinds: ["condenser"], name: "condenser", module: "condenser.js" },
  memory: { kinds: ["memory"], name: "memory", module: "memory.js" },
  "security-analyzer": { kinds: ["analyzer"], name: "securityAnalyzer", module: "analyzer.js" },
  judge: { kinds: ["judge"], name: "judge", module: "judge.js" },
  "simulated-user": {
    kinds: ["simulated-user"],
    name: "simulatedUser",
    module: "simulated_user.js",
  },
};

const KIND = Symbol.for("conclave.kind");
/** A component exports each of these once. Tools may be several. */
const SEVERAL = ["tool", "toolset"];

/** Returns the plugin's parts, by kind, in the order of the module's exports. */
export function partsOf(module) {
  const parts = {};
  for (const [name, value] of Object.entries(module)) {
    const kind = value?.[KIND];
    if (kind) (parts[kind] ??= []).push({ name, value });
  }
  return parts;
}

/** Returns the interfaces that these parts implement. */
export function interfacesOf(parts) {
  return Object.keys(INTERFACES).filter((name) => {
    const found = INTERFACES[name].kinds.flatMap((kind) => parts[kind] ?? []);
    return name === "responder" ? found.some(({ value }) => value.respond) : found.length > 0;
  });
}

/** Returns what is wrong with the parts as a whole. */
export function problemsOf(parts) {
  const problems = [];
  if (Object.keys(parts).length === 0) {
    problems.push(
      "the entry file exports no tool, agent or other part of a plugin: write `export const NAME = tool({ … })`",
    );
  }
  for (const [kind, found] of Object.entries(parts)) {
    if (found.length > 1 && !SEVERAL.includes(kind)) {
      problems.push(
        `${found.map(({ name }) => name).join(" and ")} are both of the kind ${kind}: a plugin has one`,
      );
    }
  }
  const names = (parts.tool ?? []).map(({ value }) => value.spec.name);
  const twice = names.find((name, n) => names.indexOf(name) < n);
  if (twice) problems.push(`two tools have the name ${twice}`);
  return problems;
}
