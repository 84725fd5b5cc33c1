// The host's answers to delegations, which arrive as JSON text.

/** Returns the answer in a text; `undefined` for any other text. */
export function parseAnswer(text) {
  let fields;
  try {
    fields = JSON.parse(text);
  } catch {
    return undefined;
  }
  return fields !== null && typeof fields === "object" ? answerOf(fields) : undefined;
}

function answerOf({ task_id: taskId = "", agent: worker = "", ...fields }) {
  const { status, error, tasks, cancelled } = fields;
  if (error !== undefined && status === undefined) {
    return {
      tag: "refused",
      code: error,
      message: fields.message ?? "",
      allowed: fields.allowed ?? [],
    };
  }
  if (tasks !== undefined) {
    return { tag: "listed", tasks: tasks.map(answerOf).filter((one) => one !== undefined) };
  }
  if (cancelled !== undefined) return { tag: "done", taskId, done: cancelled };
  switch (status) {
    case undefined:
      return undefined;
    case "delegated":
    case "pending":
    case "running":
      return { tag: "started", taskId, worker };
    case "told":
      return { tag: "done", taskId, done: true };
    default:
      return { tag: "ended", taskId, status, output: fields.output ?? undefined, reason: error };
  }
}

/** Returns the latest answer of the observations; without one, that of the pending message. */
export function answerIn(observations, pending) {
  const texts = observations.map(({ tag, val }) => {
    if (tag === "success" || tag === "error") return val;
    return tag === "tool" ? val.content : undefined;
  });
  // A round without observations has its answer in the pending message.
  for (const text of [pending, ...texts].reverse()) {
    const answer = text === undefined ? undefined : parseAnswer(text);
    if (answer) return answer;
  }
  return undefined;
}
