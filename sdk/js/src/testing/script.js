// A script as data: the events in a room, with their times.

const KINDS = ["text", "web", "voice", "agent", "other"];
const ACTIVITIES = ["idle", "speaking", "user-speaking", "generating"];
const STATUSES = ["completed", "failed", "cancelled", "timed-out", "interrupted"];

/** The words of each event besides its time: the required ones, and the optional ones. */
const EVENTS = {
  ends: [["task"], ["status", "output", "error"]],
  activity: [["channel", "is"], []],
  refuses: [["channel", "times"], []],
  mutes: [["channel", "muted"], []],
  leaves: [["channel"], []],
  crashes: [["for_ms"], []],
};

/** Milliseconds for which the clock runs after the last line by default: an hour. */
const AFTERWARDS_MS = 60 * 60 * 1_000;

/** Returns a checked copy of a script. Throws with the wrong word and the valid ones. */
export function scriptOf(data) {
  words("the script", data, ["channels", "script"], ["notify", "until", "expect"]);
  words("the script's expect", data.expect ?? {}, [], ["delivered", "inbox"]);
  for (const channel of data.channels) checkChannel(channel);
  for (const line of data.script) checkLine(line);
  return { ...data, channels: [...data.channels], script: [...data.script] };
}

export function checkChannel(channel) {
  words("a channel", channel, ["id", "kind"], ["says_ms"]);
  oneOf("kind of channel", channel.kind, KINDS);
}

export function checkLine({ at = 0, do: what, ...rest }) {
  if (!(at >= 0)) throw new TypeError(`the script: \`at\` must be milliseconds, and is ${at}`);
  oneOf("event", what, Object.keys(EVENTS));
  words(`the event ${what}`, rest, ...EVENTS[what]);
  if (what === "activity") oneOf("activity", rest.is, ACTIVITIES);
  if (what === "ends") oneOf("status", rest.status ?? "completed", STATUSES);
}

/** Returns the time after which nothing is played. */
export function endOf({ until, script }) {
  return until ?? Math.max(0, ...script.map(({ at = 0 }) => at)) + AFTERWARDS_MS;
}

function oneOf(what, word, known) {
  if (known.includes(word)) return;
  throw new TypeError(
    `the script: ${JSON.stringify(word)} is no ${what}: there are ${known.join(", ")}`,
  );
}

function words(what, object, required, optional) {
  const missing = required.find((name) => object[name] === undefined);
  if (missing !== undefined) throw new TypeError(`${what} has no \`${missing}\``);
  const known = [...required, ...optional];
  const unknown = Object.keys(object).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw new TypeError(`${what} has no word \`${unknown}\`: there are ${known.join(", ")}`);
}
