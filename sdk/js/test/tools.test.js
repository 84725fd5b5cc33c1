import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Denied,
  InvalidArguments,
  Outcome,
  Unavailable,
  config,
  files,
  kv,
  log,
  model,
  s,
  tool,
  toolset,
} from "@conclave/sdk";
import { fakeHost } from "@conclave/sdk/testing";

import { tools } from "../src/exports/tools.js";

const count = tool({
  name: "count",
  description: "Counts words.",
  input: s.object({
    text: s.string("The text."),
    options: s.object({ shortest: s.integer(undefined, { minimum: 1 }).default(1) }).optional(),
    lines: s.array(s.integer()).optional(),
  }),
  run: ({ text, options }) =>
    text.split(" ").filter((word) => word.length >= (options?.shortest ?? 1)).length,
});

/** Returns what a component's `call` returns, or the contract's error. */
function call(parts, name, values, host = fakeHost()) {
  return host.run(() => {
    try {
      return tools(parts).call(name, JSON.stringify(values));
    } catch (error) {
      return { error };
    }
  });
}

const throws = (name, run) => tool({ name, description: "Throws.", run });
const errorOf = (run, host) => call({ tool: [throws("a", run)] }, "a", {}, host).error;

test("a schema has descriptions, and lists the fields that are required", () => {
  assert.deepEqual(count.spec.input, {
    type: "object",
    properties: {
      text: { type: "string", description: "The text." },
      options: {
        type: "object",
        properties: { shortest: { type: "integer", minimum: 1, default: 1 } },
        additionalProperties: false,
      },
      lines: { type: "array", items: { type: "integer" } },
    },
    required: ["text"],
    additionalProperties: false,
  });
});

test("half of a surrogate pair leaves the plugin as a replacement character", () => {
  const half = "😀".slice(0, 1);
  const outcome = (run) => call({ tool: [throws("a", run)] }, "a", {});
  assert.equal(outcome(() => `a${half}b`).content, "a\ufffdb");
  assert.equal(outcome(() => "😀").content, "😀");
  // The JSON holds the character, and no escape that a parser refuses.
  const { content, value } = outcome(() => ({ [half]: [`\\ud83d${half}`, "😀"] }));
  assert.equal(value, JSON.stringify({ "\ufffd": ["\\ud83d\ufffd", "😀"] }));
  assert.equal(content, value);
  const next = outcome(() => Outcome.send(half, half)).followUpCalls[0];
  assert.equal(next.arguments, '{"to":"\ufffd","content":"\ufffd"}');
  const raise = (error) =>
    errorOf(() => {
      throw error;
    }).val;
  assert.equal(raise(new Error(`bad ${half}`)), "bad \ufffd");
  assert.equal(raise(new InvalidArguments(half)), "\ufffd");
  const host = fakeHost({ kv: true, replies: ["yes"] });
  host.run(() => {
    log.info(half, { half });
    kv.set(half, "one");
    model.complete({ prompt: [half] });
  });
  assert.equal(host.logs[0].message, '\ufffd {"half":"\ufffd"}');
  assert.equal(
    host.run(() => kv.keys()[0]),
    "\ufffd",
  );
  assert.equal(host.prompts[0].prompt[0].val.content, "\ufffd");
});

test("an error whose getters throw is an error of the contract", () => {
  const hostile = (key) =>
    Object.defineProperty(new Error("x"), key, {
      get() {
        throw new Error("inside");
      },
    });
  const host = fakeHost();
  const raise = (error) =>
    errorOf(() => {
      throw error;
    }, host);
  assert.deepEqual(raise(hostile("stack")), { tag: "other", val: "x" });
  assert.equal(host.logs[0].message, "(a value whose text cannot be read)");
  const unreadable = {
    tag: "other",
    val: "the plugin threw an error whose text cannot be read",
  };
  assert.deepEqual(raise(hostile("message")), unreadable);
  assert.deepEqual(raise(hostile("name")), unreadable);
  assert.deepEqual(raise(Object.create(null)), unreadable);
});

test("a wrong argument is named with its path", () => {
  const problem = (values) => {
    const { error } = call({ tool: [count] }, "count", values);
    assert.equal(error.tag, "invalid-arguments");
    return error.val;
  };
  assert.equal(problem({}), "text: is missing");
  assert.equal(problem({ text: 7 }), "text: must be a string");
  assert.equal(
    problem({ text: "a", options: { shortest: 0 } }),
    "options.shortest: must be at least 1",
  );
  assert.equal(problem({ text: "a", lines: [1, "b"] }), "lines[1]: must be an integer");
  assert.equal(problem({ text: "a", more: 1 }), "more: there is no such argument");
  assert.equal(problem([]), "the arguments: must be an object");
});

test("defaults are filled in, and belong to the call", () => {
  const list = tool({
    name: "list",
    description: "Returns its list.",
    input: s.object({ items: s.array(s.string()).default(["a"]) }),
    run: ({ items }) => (items.push("b"), items),
  });
  assert.deepEqual(list.call({}).value, ["a", "b"]);
  assert.deepEqual(list.call({}).value, ["a", "b"]);
  assert.equal(count.call({ text: "a bc", options: {} }).content, "2");
});

test("the keywords of a schema are checked", () => {
  const cases = [
    [{ type: "string", minLength: 2 }, "ab", "a"],
    [{ type: "string", maxLength: 1 }, "😀", "ab"],
    [{ type: "string", pattern: "^a" }, "ab", "b"],
    [{ type: "number", maximum: 2 }, 2, 3],
    [{ type: "number", exclusiveMinimum: 2 }, 3, 2],
    [{ type: "number", exclusiveMaximum: 2 }, 1, 2],
    [{ type: "number", multipleOf: 0.5 }, 1.5, 1.2],
    [{ type: "array", minItems: 1 }, [1], []],
    [{ type: "array", maxItems: 1 }, [1], [1, 2]],
    [{ type: "array", uniqueItems: true }, [1, 2], [{ a: 1 }, { a: 1 }]],
    [{ prefixItems: [{ type: "string" }], items: { type: "number" } }, ["a", 1], ["a", "b"]],
    [{ type: ["string", "null"] }, null, 1],
    [{ enum: ["a", { b: 1 }] }, { b: 1 }, { b: 2 }],
    [{ const: 1 }, 1, "1"],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, null, 1],
    [{ oneOf: [{ type: "string" }, { type: "null" }] }, "a", 1],
    [{ allOf: [{ minimum: 1 }, { maximum: 2 }] }, 2, 3],
    [{ type: "object", additionalProperties: { type: "number" } }, { a: 1 }, { a: "b" }],
    [{ $ref: "#/$defs/name" }, "a", 1],
  ];
  for (const [schema, good, ...bad] of cases) {
    const input = {
      type: "object",
      properties: { value: schema },
      $defs: { name: { type: "string" } },
    };
    const one = tool({
      name: "one",
      description: "Takes a value.",
      input,
      run: ({ value }) => ({ value }),
    });
    assert.deepEqual(one.call({ value: good }).value, { value: good }, JSON.stringify(schema));
    for (const value of bad) {
      assert.throws(() => one.call({ value }), InvalidArguments, JSON.stringify(schema));
    }
  }
});

test("a result is text, a value or nothing", () => {
  const outcome = (result, output) => {
    const one = tool({ name: "one", description: "Returns it.", output, run: () => result });
    const { content, value } = call({ tool: [one] }, "one", {});
    return [content, value];
  };
  assert.deepEqual(outcome("text"), ["text", undefined]);
  assert.deepEqual(outcome(0), ["0", "0"]);
  assert.deepEqual(outcome(false), ["false", "false"]);
  assert.deepEqual(outcome(NaN), ["NaN", undefined]);
  assert.deepEqual(outcome(undefined), [undefined, undefined]);
  assert.deepEqual(outcome(null), [undefined, undefined]);
  assert.deepEqual(outcome({ a: 1 }), ['{"a":1}', '{"a":1}']);
  assert.deepEqual(outcome("a", s.string()), ['"a"', '"a"']);
  assert.deepEqual(outcome(new Outcome({ content: "a", value: [1] })), ["a", "[1]"]);
});

test("outcomes that control the task are calls of tools of the host", () => {
  const called = ({ followUpCalls: [one] }) => `${one.name} ${JSON.stringify(one.arguments)}`;
  assert.equal(called(Outcome.done("sent")), 'done {"content":"sent"}');
  assert.equal(
    called(Outcome.agentDone("filed", [{ name: "desk.report", arguments: { year: 1844 } }])),
    'agent_done {"content":"filed","tools":[{"name":"desk.report","arguments":{"year":1844}}]}',
  );
  assert.equal(called(Outcome.result({ year: 1844 })), 'result {"year":1844}');
  assert.equal(called(Outcome.finalResult({ year: 1844 })), 'final_result {"year":1844}');
  assert.equal(called(Outcome.pass()), "pass {}");
  assert.equal(called(Outcome.donePass()), "done_pass {}");
  assert.equal(called(Outcome.forward("expert")), 'forward {"agent":"expert"}');
  assert.equal(called(Outcome.send("expert", "lit?")), 'send {"to":"expert","content":"lit?"}');
  assert.equal(called(Outcome.rewind(1, "again")), 'rewind {"n":1,"content":"again"}');
  const one = tool({ name: "one", description: "Ends the task.", run: () => Outcome.done("sent") });
  assert.deepEqual(call({ tool: [one] }, "one", {}).followUpCalls, [
    { id: "", name: "done", arguments: '{"content":"sent"}' },
  ]);
});

test("errors keep their case, and an exception is one line for the model", () => {
  const denial = { capability: "files", target: "/a", detail: "no grant" };
  assert.deepEqual(
    errorOf(() => {
      throw new InvalidArguments("a: no");
    }),
    { tag: "invalid-arguments", val: "a: no" },
  );
  assert.deepEqual(
    errorOf(() => {
      throw new Denied(denial);
    }),
    { tag: "denied", val: denial },
  );
  assert.deepEqual(
    errorOf(() => {
      throw new Unavailable(500);
    }),
    { tag: "unavailable", val: 500 },
  );
  assert.deepEqual(
    errorOf(() => {
      throw new Unavailable();
    }),
    { tag: "unavailable" },
  );
  assert.deepEqual(
    errorOf(() => {
      throw new Error("two\nlines");
    }),
    { tag: "other", val: "two" },
  );
  assert.deepEqual(
    errorOf(() => {
      throw "text";
    }),
    { tag: "other", val: "text" },
  );
  assert.deepEqual(errorOf(() => ({}).a.b).tag, "other");
});

test("the stack of an exception goes to the log, and that of a refusal does not", () => {
  const host = fakeHost();
  const error = errorOf(function crashing() {
    return undefined.nothing;
  }, host);
  assert.match(error.val, /^TypeError: Cannot read properties of undefined/);
  assert.ok(host.logs.every(({ level }) => level === "error"));
  const [first, second] = host.logs.map(({ message }) => message);
  assert.match(first, /^TypeError: Cannot read properties of undefined/);
  assert.match(second, /^\s+at .*crashing.*tools\.test\.js:\d+/);
  const { length } = host.logs;
  errorOf(() => files.read("/a"), host);
  errorOf(() => {
    throw new InvalidArguments("a: no");
  }, host);
  assert.equal(host.logs.length, length);
});

test("an import that is denied is denied for the caller too", () => {
  const { error } = call({ tool: [throws("a", () => files.readText("/tides/a"))] }, "a", {});
  assert.equal(error.tag, "denied");
  assert.equal(error.val.capability, "files");
  assert.equal(error.val.target, "/tides/a");
});

test("a promise is refused, since nothing would wait for it", () => {
  assert.throws(
    () => throws("a", async () => "late"),
    /tool a: run is async; .* remove async and await/,
  );
  assert.match(errorOf(() => Promise.resolve("late")).val, /returned a promise/);
});

test("a tool is listed with its optional fields", () => {
  const one = tool({
    name: "one",
    description: "Finds.",
    output: s.object({ year: s.integer() }),
    title: "Find",
    resultTokens: 2000,
    examples: [{ thought: "look", arguments: {} }, { arguments: {} }],
    idempotent: true,
    run: () => ({ year: 1844 }),
  });
  assert.deepEqual(tools({ tool: [one] }).listTools(), [
    {
      name: "one",
      description: "Finds.",
      inputSchema: '{"type":"object","properties":{},"additionalProperties":false}',
      outputSchema:
        '{"type":"object","properties":{"year":{"type":"integer"}},"required":["year"],"additionalProperties":false}',
      idempotent: true,
      extra: [
        { key: "title", value: '"Find"' },
        { key: "result-tokens", value: "2000" },
        {
          key: "examples",
          value: '[{"thought":"look","arguments":{}},{"thought":null,"arguments":{}}]',
        },
      ],
    },
  ]);
});

test("a definition with a mistake says which", () => {
  const wrong = (definition, message) => assert.throws(() => tool(definition), message);
  wrong({ name: "Count", description: "A.", run() {} }, /the name "Count" must be lower-case/);
  wrong({ description: "A.", run() {} }, /the name is missing/);
  wrong({ name: "a", run() {} }, /tool a: the description for the model is missing/);
  wrong({ name: "a", description: "A." }, /tool a: the function run is missing/);
  wrong(
    { name: "a", description: "A.", run() {}, idempotant: true },
    /there is no field idempotant/,
  );
  wrong(
    { name: "a", description: "A.", run() {}, input: s.string() },
    /input must be the schema of an object/,
  );
});

test("a toolset lists its tools from the settings, and runs them", () => {
  const phrases = toolset(
    class {
      list() {
        return Object.keys(config.get()).map((name) => ({ name, description: "Says its phrase." }));
      }
      call(name, { times }) {
        return config.get()[name].repeat(times);
      }
    },
  );
  const host = fakeHost({ config: { hail: "Ahoy" } });
  const parts = { tool: [count], toolset: [phrases] };
  assert.deepEqual(
    host.run(() =>
      tools(parts)
        .listTools()
        .map(({ name }) => name),
    ),
    ["count", "hail"],
  );
  assert.equal(call(parts, "hail", { times: 2 }, host).content, "AhoyAhoy");
  assert.equal(call(parts, "count", { text: "a" }, host).content, "1");
});

test("a stack of each engine has the source's lines, without frames of the SDK", () => {
  globalThis.__conclaveLines = { sources: ["app.js", "@conclave/sdk"], lines: "0:7;1:3;;1:4" };
  try {
    const logged = (stack) => {
      const host = fakeHost();
      host.run(() => log.error(Object.assign(new Error("no"), { stack })));
      return host.logs.map(({ message }) => message);
    };
    const quickjs =
      "    at run (plugin.js:1:5)\n    at call (/a/plugin.js:2:9)\n    at map (native)\n    at far (plugin.js:3)";
    assert.deepEqual(logged(quickjs), [
      "Error: no",
      "    at run (app.js:7)",
      "    at far (plugin.js:3)",
    ]);
    const starlingmonkey =
      "run@plugin.js:1:5\ncall@plugin.js:4:1\nfn@/tmp/a/sources/initializer.js:9:1\n";
    assert.deepEqual(logged(starlingmonkey), ["Error: no", "run@app.js:7"]);
  } finally {
    delete globalThis.__conclaveLines;
  }
});
