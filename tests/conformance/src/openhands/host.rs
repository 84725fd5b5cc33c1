//! Cases in which this host differs for the better: secrets in storage, broken guards, torn logs,
//! loops. Conversations run on the whole host with components.

use conclave_core::trajectory;
use conclave_core::types::outcome::Status;
use serde_json::{Value, json};

use super::Case;
use super::conversation::{Conversation, Executor};
use crate::Runner;

/// Plays one action of an agent and its execution (O-094…O-096, O-132…O-135).
pub(super) async fn runtime(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let number = |key: &str| case.get(key).and_then(Value::as_i64);
    let run = |command: &str| json!({ "action": "run", "args": { "command": command } });
    let lines = |lines: &[Value]| {
        run(&lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
    };
    let terminal = || {
        vec![Executor::terminal(
            number("pid").or_else(|| number("kill")).unwrap_or(42),
            number("timeout_s"),
        )]
    };
    let mut executors = terminal();
    let script = if let Some(action) = case.get("action") {
        let action = if action.is_string() { json!({ "action": action }) } else { action.clone() };
        if case.get("capabilities").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            executors.clear();
        } else if action["action"] == "read" || action["action"] == "write" {
            executors = vec![Executor::workspace()];
        }
        vec![action]
    } else if let Some(command) = case.get("run").and_then(Value::as_str) {
        vec![
            json!({ "action": "run", "args": { "command": command, "background": case.flag("background") } }),
        ]
    } else if let Some(commands) = case.any(&["run_lines", "run"]).and_then(Value::as_array) {
        vec![lines(commands)]
    } else if let Some(commands) = case.get("runs").and_then(Value::as_array) {
        commands.iter().filter_map(Value::as_str).map(run).collect()
    } else if let Some(id) = case.get("kill") {
        let kill = |id: i64| json!({ "action": "kill", "args": { "command_id": id } });
        let known = json!({ "action": "run", "args": { "command": "srv", "background": true } });
        match id.as_i64().filter(|_| !case.flag("unknown")) {
            Some(id) => vec![known, kill(id)],
            None => vec![kill(7)],
        }
    } else if let Some((kind, given)) =
        ["read", "write"].iter().find_map(|kind| Some((kind, case.get(kind)?)))
    {
        executors = vec![Executor::workspace()];
        let mut args = if given.is_object() { given.clone() } else { json!({ "path": given }) };
        if *kind == "write" && args.get("content").is_none() {
            args["content"] = case.get("content").cloned().unwrap_or_else(|| json!("c"));
        }
        for key in ["start", "end"] {
            if let Some(line) = case.get(key) {
                args[key] = line.clone();
            }
        }
        vec![json!({ "action": kind, "args": args })]
    } else {
        return Err("`in` has no action, run, run_lines, runs, kill, read or write".to_owned());
    };
    let last = script.len() - 1;
    let seen = Conversation::new(script, executors).with_files(files(case)).hold(runner).await?;
    let observation = seen.observation(last)?;
    Ok(json!({ "observation": observation, "ran": seen.ran() }))
}

/// Returns the initial contents of the workspace: `files`, or an entry for the path that is read.
fn files(case: &Case<'_>) -> Vec<(String, Option<Vec<u8>>)> {
    let given = case.get("files").and_then(Value::as_object).into_iter().flatten();
    let mut files: Vec<_> = given
        .map(|(name, text)| (name.clone(), text.as_str().map(|text| text.as_bytes().to_vec())))
        .collect();
    let Some(path) = case
        .any(&["read", "write"])
        .and_then(|given| given.as_str().or_else(|| given.get("path")?.as_str()))
    else {
        return files;
    };
    let bytes = case.get("bytes").and_then(Value::as_array);
    if ["is_dir", "directory", "is_directory", "dir"].iter().any(|key| case.flag(key)) {
        files.push((path.to_owned(), None));
    } else if let Some(bytes) = bytes {
        files.push((
            path.to_owned(),
            Some(
                bytes
                    .iter()
                    .filter_map(Value::as_u64)
                    .filter_map(|byte| u8::try_from(byte).ok())
                    .collect(),
            ),
        ));
    } else if case.flag("not_utf8") || case.flag("binary") {
        files.push((path.to_owned(), Some(vec![0xff, 0xfe])));
    } else if let Some(text) = case.any(&["text", "existing", "file"]).and_then(Value::as_str) {
        files.push((path.to_owned(), Some(text.as_bytes().to_vec())));
    }
    files
}

pub(super) async fn beat(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    if case.get("secrets").is_some() {
        return stored_secret(runner, case).await;
    }
    if case.get("hook").is_some() {
        return broken_guard(runner).await;
    }
    if let Some(op) = case.get("plan_op_fails") {
        return plan_fails(runner, op).await;
    }
    if let Some(which) = case.get("torn_event_file").and_then(Value::as_str) {
        return torn(which);
    }
    if let Some(times) = case.get("same_call").and_then(Value::as_u64) {
        return stuck_in_spite_of_thoughts(runner, times).await;
    }
    let lone = |action: Value| Conversation::new(vec![action], vec![Executor::terminal(42, None)]);
    if case.get("kill").is_some() {
        return lone(json!({ "action": "kill", "args": { "command_id": 7 } }))
            .hold(runner)
            .await?
            .outlived();
    }
    if let Some(delegate) = case.get("delegate") {
        return lone(json!({ "action": "delegate", "args": delegate_args(delegate) }))
            .hold(runner)
            .await?
            .outlived();
    }
    if case.get("tool").is_some() {
        return spinning(runner).await;
    }
    if let Some(actions) = case.get("actions").and_then(Value::as_array) {
        let example = |kind: &Value| {
            let mut args = super::confirm::example_args(kind.as_str().unwrap_or_default());
            if args.get("name").is_some() {
                // A call by name refers to an existing tool.
                args["name"] = json!(format!("tools.{}", kind.as_str().unwrap_or_default()));
            }
            json!({ "action": kind, "args": args })
        };
        let talk = || {
            Conversation::new(
                actions.iter().map(example).collect(),
                vec![Executor::of_tools(actions)],
            )
        };
        // Without this control run, a call that never runs would pass the check by its absence.
        let free = talk().hold(runner).await?;
        if free.executed() != *actions {
            return Err(format!("without anybody's consent only these run: {:?}", free.executed()));
        }
        return Ok(
            json!({ "executed_before_answer": talk().confirming().hold(runner).await?.executed() }),
        );
    }
    if let Some(calls) = case.get("crash_with_in_flight") {
        let names = calls
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        return super::crash::play(runner, names).await;
    }
    Err("`in` has nothing that this kind plays".to_owned())
}

fn delegate_args(delegate: &Value) -> Value {
    let mut args = delegate.clone();
    if args.get("inputs").is_none() {
        args["inputs"] = json!({});
    }
    args
}

/// Plays a conversation whose tool never ends, and another one on the same host meanwhile.
async fn spinning(runner: &Runner) -> Result<Value, String> {
    let run = || json!({ "action": "run", "args": { "command": "echo hi" } });
    let spins = Conversation::new(vec![run()], vec![Executor::spinning()]);
    let other = Conversation::new(vec![run()], vec![Executor::terminal(42, None)]);
    let (spun, other) = tokio::join!(spins.hold(runner), other.hold(runner));
    let (spun, other) = (spun?, other?);
    let told = spun.observation(0)?;
    Ok(
        json!({ "observation": told["observation"], "content": told["content"], "other_conversations_blocked": other.observation(0)?["content"] != "hi" }),
    )
}

/// Returns the journal's form of an action in which the agent wrote a secret by hand.
async fn stored_secret(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let action = case.get("event").cloned().ok_or("`in` has no event")?;
    let seen =
        Conversation::new(vec![action], vec![Executor::terminal(42, None)]).hold(runner).await?;
    let secrets = case
        .get("secrets")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|all| all.values().filter_map(Value::as_str));
    let stored = seen.stored();
    Ok(
        json!({ "stored_bytes_contain_secret": secrets.filter(|secret| !secret.is_empty()).any(|secret| stored.contains(secret)) }),
    )
}

/// Plays a conversation in which a plan change is refused. The agent reads the reason and
/// continues.
async fn plan_fails(runner: &Runner, op: &Value) -> Result<Value, String> {
    let word = |at: usize| {
        op.get(at).and_then(Value::as_str).ok_or_else(|| format!("{op} is no change of a plan"))
    };
    let action = match word(0)? {
        "add" => json!({ "action": "add_task", "args": { "parent": word(1)?, "goal": word(2)? } }),
        _ => json!({ "action": "modify_task", "args": { "task_id": word(1)?, "state": word(2)? } }),
    };
    Conversation::new(vec![action], Vec::new()).hold(runner).await?.outlived()
}

/// Returns the output of `conclave trajectory show` for a log of ten events, one of which is
/// partially written.
fn torn(which: &str) -> Result<Value, String> {
    const EVENTS: usize = 10;
    let torn = if which == "last" { EVENTS - 1 } else { EVENTS / 2 };
    let event = |at: usize| {
        json!({ "id": at, "source": "user", "action": "message", "args": { "content": format!("message {at}") } }).to_string()
    };
    let line = |at: usize| if at == torn { event(at)[..20].to_owned() } else { event(at) };
    let lines: Vec<String> = (0..EVENTS).map(line).collect();
    let loaded = trajectory::load(&lines.join("\n"));
    let ids: Vec<i64> = loaded.events.iter().filter_map(|event| event.id).collect();
    let all_before = ids.iter().map(|id| usize::try_from(*id)).eq((0..torn).map(Ok));
    let kept = if all_before { json!("all before the torn one") } else { json!(ids) };
    let place = format!("line {}", torn + 1);
    Ok(
        json!({ "loads": !ids.is_empty(), "events_kept": kept, "reports_gap": loaded.problems.iter().any(|problem| problem.at == place) }),
    )
}

/// Plays a guard that reports `low`, one that traps and one that runs out of time. Only the first
/// lets the action happen (O-184).
async fn broken_guard(runner: &Runner) -> Result<Value, String> {
    let run = json!({ "action": "run", "args": { "command": "echo hi" } });
    let guarded = |mode: &str| {
        Conversation::new(vec![run.clone()], vec![Executor::terminal(42, None)]).assessed(mode)
    };
    if guarded("low").hold(runner).await?.executed().is_empty() {
        return Err("a guard that allows lets nothing happen either".to_owned());
    }
    for mode in ["trap", "spin"] {
        let executed = guarded(mode).hold(runner).await?.executed();
        if !executed.is_empty() {
            return Ok(json!({ "verdict": "allow", "mode": mode, "executed": executed }));
        }
    }
    Ok(json!({ "verdict": "deny" }))
}

/// Repeats the same action and result, each with another thought, which is a loop. Then repeats it
/// with another result each time, which is none.
async fn stuck_in_spite_of_thoughts(runner: &Runner, times: u64) -> Result<Value, String> {
    let of = |command: &dyn Fn(u64) -> String| {
        let action = |at: u64| json!({ "action": "run", "args": { "command": command(at) }, "thought": format!("thought {at}") });
        // One action more than the limit: only an undetected loop would carry it out.
        Conversation::new((0..=times).map(action).collect(), vec![Executor::terminal(42, None)])
    };
    let other = of(&|at| format!("echo {at}")).hold(runner).await?;
    if other.status != Status::Done {
        return Err(format!(
            "an agent that does something else each time is stopped: {:?}",
            other.status
        ));
    }
    let same = of(&|_| "echo x".to_owned()).hold(runner).await?;
    Ok(json!({ "stuck": same.status == Status::InfLoop, "status": same.status.as_str() }))
}
