// The page of conversations. Text of people, agents and models is only ever set as text. The
// server's transcript is the only state; messages that it has not confirmed are kept with their keys
// and sent again, and the server takes each key once.
"use strict";

const element = (id) => document.getElementById(id);
const [log, entries, draft, pending] = ["log", "entries", "draft", "pending"].map(element);
const [form, text, send, stop] = ["form", "text", "send", "stop"].map(element);
const [login, secret, provider] = ["login", "token", "provider"].map(element);
const greeting = ["greeting", "task", "description", "agent", "usage"].map(element);
const [picker, begin, statusLine, problem] = ["conversations", "begin", "status", "problem"].map(element);
const configPicker = element("config");

// The config of the page, if its address names one of several.
const CONFIG = new URLSearchParams(location.search).get("config");
const ofConfig = (name) => `/api/conversations${name ? `?config=${encodeURIComponent(name)}` : ""}`;
const PENDING = "conclave-pending";
const RETRY = 3000;
const NO_ACCESS = "This browser has no access. Open the address that `conclave serve` printed, or log in with your token.";
const LOST = "The connection is lost. Trying again …";
const MISSING = "The conversation of this address is not there, or not yours to read; this is another one.";

let current = null; // the id of the conversation
let stream = null;
let timer = null;
let outbox = []; // { id, key, text, item }

async function call(path, body) {
  const response = await fetch(path, body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = response.headers.get("content-type")?.includes("json") ? await response.json() : {};
  if (!response.ok) {
    throw Object.assign(new Error(answer.message || `the server answered ${response.status}`),
      { status: response.status, code: answer.error, login: answer.login });
  }
  return answer;
}

const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function node(name, className, content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

// The position is kept at the end, unless the reader has scrolled back.
function atEnd(change) {
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

function speaker({ kind, from }) {
  switch (kind) {
    case "user": return from || "You";
    case "interim": return `${from}, at work`;
    case "result": return from ? `${from}, result` : "Result";
    case "relayed": return "Another channel";
    default: return from || "";
  }
}

// Agents write Markdown, which the server has read: what arrives are blocks, and each text in them is
// only ever set as text.
const builders = {
  paragraph: ({ inlines }) => line("p", inlines),
  heading: ({ inlines }) => line("p", inlines, "heading"),
  code: ({ text }) => { const pre = node("pre"); pre.append(node("code", "", text)); return pre; },
  quote: ({ blocks }) => { const quote = node("blockquote"); quote.append(...blocks.map(build)); return quote; },
  rule: () => node("hr"),
  list: ({ items }) => {
    const list = node("ul");
    list.append(...items.map(({ depth, mark, inlines }) => {
      const item = node("li", `m${depth}`);
      item.append(node("span", "mark", mark), line("span", inlines));
      return item;
    }));
    return list;
  },
};
const build = (block) => builders[block.block](block);

function line(name, inlines, className) {
  const made = node(name, className);
  made.append(...inlines.map(part));
  return made;
}

function part({ inline, text, url, inlines }) {
  switch (inline) {
    case "code": return node("code", "", text);
    case "strong": return line("strong", inlines);
    case "emphasis": return line("em", inlines);
    case "break": return node("br");
    case "link": {
      const link = node("a", "", url);
      if (/^https?:\/\//.test(url)) link.href = url;
      link.rel = "noopener noreferrer nofollow ugc";
      return link;
    }
    default: return document.createTextNode(text);
  }
}

function addEntry(entry) {
  const item = node("li", `entry ${entry.kind}`);
  if (entry.kind !== "note") {
    const who = node("b", "who", speaker(entry));
    const at = new Date(entry.at);
    const time = node("time", "", at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
    time.dateTime = at.toISOString();
    time.title = at.toLocaleString();
    who.append(time);
    item.append(who);
  }
  const body = entry.blocks ? node("div", "markdown") : node("p", "", entry.text);
  if (entry.blocks) body.append(...entry.blocks.map(build));
  body.dir = "auto";
  item.append(body);
  entries.append(item);
  if (entry.kind === "user") nameConversation(entry.text);
}

function nameConversation(title) {
  const option = Array.from(picker.options).find((option) => option.value === current);
  if (option && option.dataset.unnamed) {
    option.textContent = (option.dataset.config ?? "") + title.trim().slice(0, 60);
    delete option.dataset.unnamed;
  }
}

// Greets with the config's words about the task that answers, and with what the reader can do.
function showGreeting({ task, can_send: canSend, can_receive: canReceive, closed }) {
  const [section, name, description, agent, usage] = greeting;
  section.hidden = !task;
  if (!task) return;
  document.title = `${task.name} – Conclave`;
  name.textContent = task.name;
  description.textContent = task.description.trim() || "This task has no description.";
  agent.textContent = `Agent: ${task.agent}`;
  const lines = [];
  if (canSend && !closed) {
    lines.push("Write a message below. Enter sends it, Shift+Enter begins a new line.");
    if (canReceive) lines.push("While the agent works, Stop ends its turn.");
  }
  lines.push("New begins another conversation, which knows nothing of this one.");
  usage.textContent = lines.join(" ");
}

function showStatus(status) {
  showGreeting(status);
  const lines = [];
  if (status.paused) lines.push(`The operator paused the agents: ${status.paused}`);
  // A turn that only waits for an approval does not work.
  if (status.is_working && (status.tools.length || !status.approvals.length)) {
    lines.push(status.tools.length ? `Working; running: ${status.tools.join(", ")}` : "Working …");
  }
  for (const { id, tool } of status.approvals) {
    lines.push(`${tool} waits until the operator approves it: conclave approve ${id}`);
  }
  if (status.background.length) {
    lines.push(`In the background: ${status.background.map(([id, task]) => `${task} (${id})`).join(", ")}`);
  }
  if (status.pending_changes) {
    const files = status.pending_changes === 1 ? "1 changed file waits" : `${status.pending_changes} changed files wait`;
    const blocked = status.blocked_changes ? ` (${status.blocked_changes} in conflict)` : "";
    const them = status.pending_changes === 1 ? "it" : "them";
    lines.push(`${files}${blocked} until the operator applies or drops ${them}: conclave diff ${current}`);
  }
  if (status.is_asking && !status.is_working) lines.push("Waiting for your message");
  const isLimited = !(status.can_send && status.can_receive) && status.task && !status.closed;
  if (isLimited && status.can_receive) lines.push("You can read here, but not write: the channel is read-only");
  else if (isLimited && status.can_send) lines.push("You can write here, but answers are not shown: the channel receives none");
  else if (isLimited) lines.push("The channel takes no messages here, and shows no answers");
  if (status.closed) lines.push(`The conversation is over: ${status.closed}. New begins another one.`);
  // The same text again would be read out again.
  const shown = lines.join("\n");
  if (statusLine.textContent !== shown) statusLine.textContent = shown;
  statusLine.classList.toggle("working", status.is_working);
  statusLine.classList.toggle("asked", status.approvals.length > 0);
  stop.hidden = !status.is_working;
  const isClosed = Boolean(status.closed) || !status.can_send;
  send.disabled = text.disabled = isClosed;
  entries.removeAttribute("aria-busy");
}

function showDraft({ number, text: more }) {
  const isNew = draft.dataset.number !== String(number);
  draft.dataset.number = number;
  const body = draft.querySelector("p");
  body.textContent = isNew ? more : body.textContent + more;
  draft.querySelector(".who").textContent = "Writing …";
  draft.hidden = !body.textContent;
}

function clear() {
  entries.replaceChildren();
  entries.setAttribute("aria-busy", "true");
  draft.hidden = true;
  draft.dataset.number = "";
}

function follow(id) {
  clearTimeout(timer);
  stream?.close();
  current = id;
  location.hash = `#${id}`;
  // A message that another conversation has not taken is shown there.
  for (const message of outbox) message.item.hidden = message.id !== id;
  clear();
  const events = stream = new EventSource(`/api/conversations/${encodeURIComponent(id)}/events`);
  events.addEventListener("open", () => {
    if (problem.textContent === LOST) problem.textContent = "";
    sendAll();
  });
  events.addEventListener("reset", clear);
  events.addEventListener("entry", (event) => atEnd(() => addEntry(JSON.parse(event.data))));
  events.addEventListener("status", (event) => showStatus(JSON.parse(event.data)));
  events.addEventListener("draft", (event) => atEnd(() => showDraft(JSON.parse(event.data))));
  events.addEventListener("error", () => {
    if (events !== stream) return;
    problem.textContent = LOST;
    // What it was doing is unknown until the next status.
    statusLine.textContent = "";
    stop.hidden = draft.hidden = true;
    // The next connection begins with the whole text.
    draft.dataset.number = "";
    // The browser connects again by itself, except after an answer that is no stream.
    if (events.readyState === EventSource.CLOSED) timer = setTimeout(check, RETRY);
  });
}

async function check() {
  try {
    await call("/api/conversations");
    follow(current);
  } catch (error) {
    fail(error);
    if (error.status !== 401) timer = setTimeout(check, RETRY);
  }
}

function fail(error) {
  login.hidden = error.status !== 401;
  provider.hidden = !error.login;
  problem.textContent = error.status === 401 ? NO_ACCESS : error.status ? error.message : LOST;
}

function save() {
  sessionStorage.setItem(PENDING, JSON.stringify(outbox.map(({ id, key, text }) => ({ id, key, text }))));
}

function queue(message) {
  const item = node("li", "entry waiting");
  const body = node("p", "", message.text);
  body.dir = "auto";
  item.append(node("b", "who", "Sending …"), body);
  item.hidden = message.id !== current;
  outbox.push({ ...message, item });
  pending.append(item);
  save();
}

function remove(message) {
  outbox = outbox.filter((other) => other !== message);
  message.item.remove();
  save();
}

function refuse(message, error) {
  const { item } = message;
  message.isRefused = true;
  item.classList.add("refused");
  item.querySelector(".who").textContent = "Not accepted";
  const code = error.code ? ` (${error.code})` : "";
  item.append(node("p", "reason", `${error.message}${code}`));
  const [again, drop] = [node("button", "", "Send again"), node("button", "", "Discard")];
  again.type = drop.type = "button";
  again.addEventListener("click", () => {
    message.isRefused = false;
    // The server keeps the key for the text that had it first.
    if (error.code === "key_reused") {
      message.key = randomKey();
      save();
    }
    deliver(message);
  });
  drop.addEventListener("click", () => { remove(message); text.focus(); });
  const choices = node("div", "choices");
  choices.append(again, drop);
  item.append(choices);
}

async function deliver(message) {
  if (message.isSending) return;
  message.isSending = true;
  message.item.classList.remove("refused");
  message.item.querySelector(".who").textContent = "Sending …";
  message.item.querySelector(".reason")?.remove();
  message.item.querySelector(".choices")?.remove();
  try {
    const path = `/api/conversations/${encodeURIComponent(message.id)}/messages`;
    await call(path, { key: message.key, text: message.text });
    atEnd(() => remove(message));
  } catch (error) {
    // Without an answer it is unknown whether the message arrived. It is sent again under its key.
    if (error.status) atEnd(() => refuse(message, error));
    else {
      message.item.querySelector(".who").textContent = "Not sent yet";
      problem.textContent = LOST;
    }
  } finally {
    message.isSending = false;
  }
}

function sendAll() {
  outbox.filter((message) => !message.isRefused).reduce((before, message) => before.then(() => deliver(message)), Promise.resolve());
}

// Of several configs, a new conversation is one of the config that is chosen.
const beginOne = () => call(ofConfig(configPicker.value || CONFIG), {});

function showConfigs(names) {
  const chosen = configPicker.value;
  configPicker.hidden = !names.length;
  configPicker.replaceChildren(...names.map((name) => node("option", "", name)));
  if (names.includes(chosen)) configPicker.value = chosen;
}

async function list(chosen) {
  const { conversations, configs } = await call(ofConfig(CONFIG));
  showConfigs(configs ?? []);
  const name = ({ config, title }) => (configs ? `${config}: ` : "") + (title || "New conversation");
  picker.replaceChildren(...conversations.map((conversation) => {
    const { id, title, is_open: isOpen } = conversation;
    // Of several with the same name, each has the number that the operator's terminal shows.
    const isSame = conversations.some((other) => other.id !== id && name(other) === name(conversation));
    const number = isSame ? ` · ${id.match(/\.(\d+)$/)?.[1] ?? 1}` : "";
    const option = node("option", "", name(conversation) + number + (isOpen ? "" : " (over)"));
    option.value = id;
    if (!title) option.dataset.unnamed = "1";
    if (configs) option.dataset.config = `${conversation.config}: `;
    return option;
  }));
  if (!conversations.length) {
    // Each person begins conversations of their own, and the first one by coming here. Who may not
    // begin one waits for those of others.
    try {
      const { id } = await beginOne();
      return list(id);
    } catch (error) {
      // Without a channel, or of several configs without one that is chosen, there are runs only.
      if (!["missing_role", "unknown_channel", "config_required"].includes(error.code)) throw error;
      statusLine.textContent = error.code === "missing_role"
        ? "There is no conversation yet, and your role may not begin one."
        : "There are no conversations here, but runs.";
      begin.disabled = send.disabled = text.disabled = true;
      return;
    }
  }
  const known = conversations.find(({ id }) => id === chosen) || conversations.find(({ is_open: isOpen }) => isOpen) || conversations[0];
  picker.value = known.id;
  follow(known.id);
  problem.textContent = chosen && known.id !== chosen ? MISSING : "";
}

async function start() {
  const hash = decodeURIComponent(location.hash.slice(1));
  const token = hash.startsWith("token=") ? hash.slice(6) : null;
  try {
    if (token) {
      // Neither the history nor a screenshot keeps it.
      history.replaceState(null, "", "/");
      await call("/api/session", { token });
      // The server writes the navigation of whoever is logged in.
      return location.reload();
    }
    await list(hash);
    login.hidden = true;
    text.focus();
  } catch (error) {
    fail(error);
    send.disabled = text.disabled = true;
    if (error.status !== 401) timer = setTimeout(start, RETRY);
  }
}

login.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = secret.value.trim();
  secret.value = "";
  try {
    await call("/api/session", { token });
    location.reload();
  } catch (error) {
    fail(error);
  }
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!text.value.trim() || send.disabled) return;
  queue({ id: current, key: randomKey(), text: text.value });
  text.value = "";
  log.scrollTop = log.scrollHeight;
  sendAll();
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
stop.addEventListener("click", () =>
  call(`/api/conversations/${encodeURIComponent(current)}/stop`, {}).catch(fail));
picker.addEventListener("change", () => follow(picker.value));
begin.addEventListener("click", async () => {
  try {
    const { id } = await beginOne();
    await list(id);
    text.focus();
  } catch (error) {
    fail(error);
  }
});
window.addEventListener("hashchange", () => {
  const id = decodeURIComponent(location.hash.slice(1));
  // The address of another conversation, or a token.
  if (id !== current) start();
});
JSON.parse(sessionStorage.getItem(PENDING) || "[]").forEach(queue);
start();
