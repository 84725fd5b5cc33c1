// The fixed JSON form, with the table that the SDKs of all languages share.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import {
  InvalidArguments,
  Outcome,
  act,
  callTool,
  finish,
  model,
  observationFromJson,
  observationToJson,
  say,
  turnFromJson,
  turnFromValue,
  turnToJson,
  valueIn,
  withText,
} from "@conclave/sdk";
import { fakeHost, task } from "@conclave/sdk/testing";

import { formsOfMessage } from "../src/codec/observations.js";

const table = JSON.parse(
  readFileSync(new URL("../../../tests/data/trajectory/codec.json", import.meta.url), "utf8"),
);
const ERAS = ["2024-07", "2025-11"];
const TASK = ["worker", "description", "context", "shareChannels"];

/** Returns the rows of a part of the table. */
function rows(name) {
  assert.ok(table[name].length > 0, name);
  return table[name];
}

const picked = (object, names) => Object.fromEntries(names.map((name) => [name, object[name]]));

const turnOf = ({ action, thought = "", wait = false, extra = {} }) => ({
  action,
  thought,
  waitForResponse: wait,
  extra,
});

/** Returns a turn as the table writes it, without what is absent. */
function rowOf({ action: { tag, val }, thought, waitForResponse, extra }) {
  let value = val;
  if (tag === "reply") {
    const { content, toolCalls } = val;
    value = { content, toolCalls: toolCalls.length > 0 ? toolCalls : undefined };
  }
  if (tag === "delegate-task") value = picked(val, TASK);
  return plain({
    action: { tag, val: value },
    thought: thought || undefined,
    wait: waitForResponse || undefined,
    extra: Object.keys(extra).length > 0 ? extra : undefined,
  });
}

function observationRow({ tag, val }) {
  return plain({ tag, val: tag === "tool" ? picked(val, ["name", "content", "isError"]) : val });
}

const plain = (value) => JSON.parse(JSON.stringify(value));

function problem(work) {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof InvalidArguments, error.stack);
    return error.message;
  }
  return assert.fail("it was not refused");
}

/** Returns what `read` returns as a row, or the text of its refusal. */
function again(read, row) {
  try {
    return row(read());
  } catch (error) {
    if (!(error instanceof InvalidArguments)) throw error;
    return error.message;
  }
}

test("each turn has its form in both eras, and is read again", () => {
  for (const row of rows("turns")) {
    ERAS.forEach((era, at) => {
      const form = plain(turnToJson(turnOf(row.turn), era));
      assert.deepEqual(form, row[era]);
      const expected = row.again === undefined ? row.turn : row.again[at];
      assert.deepEqual(
        again(() => turnFromValue(form), rowOf),
        expected,
      );
    });
  }
});

test("each text of a model is read, or refused in its words", () => {
  for (const { text, turn } of rows("texts")) {
    assert.deepEqual(rowOf(turnFromJson(text)), turn, text);
  }
  for (const { text, error } of rows("refused")) {
    assert.equal(
      problem(() => turnFromJson(text)),
      error,
    );
  }
  for (const { text } of rows("no JSON")) {
    assert.match(
      problem(() => turnFromJson(text)),
      /^what was written is no JSON: /,
      text,
    );
  }
  for (const letter of ["{", "["]) assert.throws(() => valueIn(letter.repeat(100_000)));
  assert.match(
    problem(() => valueIn(`${"[".repeat(128)}{}${"]".repeat(128)}`)),
    /no JSON/,
  );
});

test("each observation has its form in both eras, and is read again", () => {
  for (const row of rows("observations")) {
    ERAS.forEach((era, at) => {
      const form = plain(observationToJson(row.observation, era));
      assert.deepEqual(form, row[era]);
      const expected = row.again === undefined ? row.observation : row.again[at];
      assert.deepEqual(
        again(() => observationFromJson(form), observationRow),
        expected,
      );
    });
  }
  for (const { form, observation } of rows("observed")) {
    assert.deepEqual(observationRow(observationFromJson(form)), observation);
  }
  for (const { form, error } of rows("refused observations")) {
    assert.equal(
      problem(() => observationFromJson(form)),
      error,
    );
  }
});

test("each message is its events, and a view has them", () => {
  for (const row of rows("messages")) {
    const { message } = row;
    for (const era of ERAS) {
      const parts = { toolCalls: [], toolResults: [], ...message };
      assert.deepEqual(plain(formsOfMessage(parts, era)), row[era]);
      assert.deepEqual(plain(task({ history: [message] }).events(era)), row[era]);
    }
  }
  const view = task({
    sinceLastStep: [
      { action: { tag: "run", val: { command: "ls", background: false } }, seq: 3 },
      { observation: { tag: "success", val: "done" }, seq: 4 },
      { action: { tag: "custom", val: { name: "dance", arguments: {} } }, seq: 5 },
    ],
  });
  const events = view
    .newEvents()
    .map(({ id, source, action, observation }) => [id, source, action ?? observation]);
  assert.deepEqual(events, [
    [3, "agent", "run"],
    [4, undefined, "success"],
  ]);
  assert.throws(() => view.newEvents("2023"), TypeError);
});

test("a model is asked for an action, and reads what was wrong", () => {
  const read = (reply, read) => fakeHost({ replies: [reply] }).run(() => model.act({}, read));
  assert.deepEqual(read('I look: {"action": "run", "args": {"command": "ls"}}'), act.run("ls"));
  const called = read({ content: "I look.", calls: [{ name: "a.b", arguments: { n: 1 } }] });
  assert.deepEqual(called.action.val.toolCalls[0].name, "a.b");
  assert.deepEqual(
    read("DONE", (text) => finish(text)),
    finish("DONE"),
  );
  const refused = problem(() => read("Well, let us see."));
  assert.match(refused, /^there is no JSON object .*\nYou wrote: Well, let us see\.$/s);
  assert.equal(problem(() => read("😀".repeat(600))).match(/😀/gu).length, 500);
  assert.throws(
    () =>
      read("x", () => {
        throw new RangeError("own");
      }),
    RangeError,
  );
});

test("every form for a model can be parsed", () => {
  for (const line of act.form().split("\n")) turnFromJson(line);
  assert.equal(
    act.form("recall"),
    '{"action": "recall", "args": {"query": "words"}}  searches your memory',
  );
});

test("tools of the host and of servers are calls", () => {
  const calls = [{ name: "a.b" }];
  const sent = { to: "desk", content: "lit?", tools: [{ name: "a.b", arguments: {} }] };
  const message = { intended_recipient: "desk", content: "lit?" };
  assert.deepEqual(act.callMcp("maps.find", { q: 1 }), callTool("maps.find", { q: 1 }));
  assert.deepEqual(act.agentSend("desk", "lit?", calls), callTool("agent_send", sent));
  assert.deepEqual(act.recipientMessage("desk", "lit?"), callTool("recipient_message", message));
  const followUp = (outcome) => outcome.followUpCalls;
  assert.deepEqual(followUp(Outcome.agentSend("desk", "lit?", calls)), [
    { name: "agent_send", arguments: sent },
  ]);
  assert.deepEqual(followUp(Outcome.recipientMessage("desk", "lit?")), [
    { name: "recipient_message", arguments: message },
  ]);
});

test("a turn may have a text for the history", () => {
  const expected = { ...say("hi"), extra: { text: "I say hi." } };
  assert.deepEqual(withText(say("hi"), "I say hi."), expected);
  assert.deepEqual(say("hi", { text: "I say hi." }), expected);
});
