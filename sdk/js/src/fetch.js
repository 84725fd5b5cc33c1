// HTTP requests to the addresses that the operator granted. The host follows redirects, and checks
// each one.

import * as host from "#host/fetch";
import { u64 } from "#u64";

import { HostError, Unavailable, ask } from "./errors.js";
import { readPages } from "./pages.js";
import { placeholder } from "./secrets.js";
import { toBytes, toText } from "./utf8.js";
import { wellFormed } from "./well_formed.js";
import { extraTo, json, optional } from "./wire.js";

/** Bytes and characters of a body in an error. */
const START = 1024;
const SHOWN = 200;
const FIELDS = ["method", "headers", "query", "body", "json", "timeoutMs", "extra"];

/** Returns a secret as the value of a header or a parameter; the host inserts it. */
export const secret = (name, { before = "" } = {}) => new Secret(() => before + placeholder(name));

// Only `secret` names the import of secrets, so that a plugin without it does not import them.
class Secret {
  constructor(text) {
    this.text = text;
  }
}

/** Sends a request, and returns the whole response. A status such as 404 is a response. */
export function fetch(url, options = {}) {
  const unknown = Object.keys(options).find((key) => !FIELDS.includes(key));
  if (unknown) throw new TypeError(`fetch: there is no option ${unknown}`);
  const hasBody = options.body !== undefined || options.json !== undefined;
  const request = wellFormed({
    method: (options.method ?? (hasBody ? "POST" : "GET")).toUpperCase(),
    url: withQuery(String(url), options.query ?? {}),
    headers: headersOf(options),
    body: bodyOf(options),
    timeoutMs: options.timeoutMs,
    extra: extraTo(options.extra),
  });
  return new Response(ask(`fetch ${url}`, () => host.send(request)));
}

function headersOf({ headers = {}, json: value }) {
  const list = Object.entries(headers).map(([name, one]) => ({ name, value: textOf(one) }));
  if (value !== undefined) list.push({ name: "content-type", value: "application/json" });
  return list;
}

function bodyOf({ body, json: value }) {
  if (value !== undefined) return toBytes(json(value));
  return optional(body, toBytes);
}

function withQuery(url, query) {
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(textOf(value))}`);
  if (pairs.length === 0) return url;
  return `${url}${url.includes("?") ? "&" : "?"}${pairs.join("&")}`;
}

const textOf = (value) => (value instanceof Secret ? value.text() : String(value));

/** A complete response, whose body the host holds. */
class Response {
  #response;

  constructor(response) {
    this.#response = response;
  }

  get status() {
    return this.#response.status();
  }

  get ok() {
    return this.status >= 200 && this.status < 300;
  }

  /** The headers with names in lower case; several values of one name are joined with `, `. */
  get headers() {
    const all = {};
    for (const { name, value } of this.#response.headers()) {
      all[name] = Object.hasOwn(all, name) ? `${all[name]}, ${value}` : value;
    }
    return all;
  }

  /** The address that answered, after redirects. */
  get url() {
    return this.#response.url();
  }

  /** The length of the body in bytes. */
  get length() {
    return Number(this.#response.length());
  }

  /** Returns the whole body, whatever the status. */
  bytes() {
    return readPages((offset, length) => this.#response.read(u64(offset), length));
  }

  /** Returns the body as text. Throws if the status is not a success. */
  text() {
    this.#succeed();
    return toText(this.url, this.bytes());
  }

  /** Returns the body as JSON. Throws if the status is not a success. */
  json() {
    const text = this.text();
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`${this.url} answered with invalid JSON: ${error.message}`);
    }
  }

  #succeed() {
    const { status, ok } = this;
    if (ok) return;
    if (status === 429 || status === 503) {
      const seconds = Number.parseInt(this.headers["retry-after"] ?? "", 10);
      const after = Number.isSafeInteger(seconds) ? seconds * 1_000 : undefined;
      throw new Unavailable(after, `${this.url} answered with ${status}`);
    }
    const start = new TextDecoder().decode(this.#response.read(u64(0), START)).slice(0, SHOWN);
    throw new HostError(`${this.url} answered with ${status}: ${start}`, "status", status);
  }
}
