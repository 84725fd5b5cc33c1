// What Node and browsers have and a component has not, each with the alternative.

const FILES = "use `files` of @conclave/sdk, under the grant `files`";
const FETCH = "use `fetch` of @conclave/sdk, under the grant `fetch`";
const NO_SOCKETS = `a component has no sockets; ${FETCH}`;
const NO_PROCESSES = "a component starts no processes; an agent runs commands with `act.run`";
const NO_THREADS =
  "a component has one thread; give the work to a background task with `background.start`";
const NO_TIMERS =
  "a component has no event loop and no timers; a strategy waits with `delivery.wait`";
const BYTES = "use `Uint8Array`, `TextEncoder` and `TextDecoder`";
const SETTINGS = "use `config` of @conclave/sdk for settings; a component has no environment";

/** By the name of a module of Node. */
export const MODULES = {
  fs: FILES,
  http: FETCH,
  https: FETCH,
  http2: FETCH,
  undici: FETCH,
  net: NO_SOCKETS,
  tls: NO_SOCKETS,
  dgram: NO_SOCKETS,
  dns: NO_SOCKETS,
  child_process: NO_PROCESSES,
  cluster: NO_PROCESSES,
  worker_threads: NO_THREADS,
  timers: NO_TIMERS,
  process: SETTINGS,
  os: SETTINGS,
  buffer: BYTES,
  sqlite: "use `kv` of @conclave/sdk, which outlives a run",
  test: "tests run natively; keep them out of the plugin's files",
};

/** By the name of a global that no engine has, or that must not be used. */
export const GLOBALS = {
  setTimeout: NO_TIMERS,
  setInterval: NO_TIMERS,
  setImmediate: NO_TIMERS,
  queueMicrotask: NO_TIMERS,
  fetch: "import `fetch` from @conclave/sdk, which returns the response at once",
  XMLHttpRequest: FETCH,
  WebSocket: NO_SOCKETS,
  Worker: NO_THREADS,
  SharedArrayBuffer: NO_THREADS,
  localStorage: "use `kv` of @conclave/sdk",
  process: SETTINGS,
  Buffer: BYTES,
  WebAssembly: "the engine does not run WebAssembly; use a package in plain JavaScript",
};

/** By the name of a global that the default engine has not, besides those. */
export const DEFAULT_ENGINE_LACKS = {
  URL: "the default engine has no URL; use a package in plain JavaScript",
  structuredClone:
    "the default engine has no structuredClone; use `JSON.parse(JSON.stringify(value))`",
  Intl: "the default engine has no Intl; format in plain JavaScript",
  crypto: "the default engine has no crypto; use a package in plain JavaScript",
};

/** The error for each async function of the plugin. */
export const ASYNC =
  "no event loop runs in a component, so an async function never ends: remove `async` and `await`; the host's functions return their results at once";

/** The error for each module that awaits outside of its functions. */
export const TOP_LEVEL_AWAIT =
  "no event loop runs in a component, so a module cannot await: remove `await`; the host's functions return their results at once";

/** The warning about a module that esbuild could not bundle. */
export const UNBUNDLED =
  "the plugin or a package names a module with `require` or `import()` and no literal, which is not bundled: write `import … from`";
