//! `conclave trajectory replay FILE [CONFIG]`: starts a run with a log's task, and executes the
//! log's actions as its first turns (O-119). The config's present grants apply to every action.
//! With `--compare` no agent is called, and the observations are compared with the log's.

use std::sync::Arc;
use std::time::Instant;

use conclave_core::trajectory::action::Finish;
use conclave_core::trajectory::{Action, AnsweredAction, Loaded, Replay, TrajectoryEvent};
use conclave_core::types::action::Turn;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::{RunInput, RunOptions};

use super::compare::{self, RecordedRun};
use super::log;
use crate::args::{OutputArgs, Questions, TrajectoryReplay};
use crate::program::error::CliError;
use crate::program::exit;
use crate::session::context::{RunContext, RunStyle};
use crate::session::failure::unkept;
use crate::state::journals::{RunCommand, RunStorage};
use crate::state::setup::{self, EngineStart};
use crate::state::store_address::with_named_store;
use crate::ui::interrupt::Interrupts;
use crate::ui::show::{head, plural, show_path};
use crate::ui::stderr;

pub(super) async fn replay(
    args: TrajectoryReplay,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    args.trace.detail(output)?;
    let loaded = log::read(&args.file)?;
    if !output.json {
        log::tell(&loaded.problems);
    }
    let (task, turns) = read_turns(&loaded, &args)?;
    let loading = Instant::now();
    let (models, locked) = (args.model.models()?, args.locked.locked);
    let engine = EngineStart::begin();
    let config = setup::read_config(&args.config, &models)?;
    let storage = RunStorage::open(
        &with_named_store(&args.keep, &config)?,
        RunCommand::new("run", &args.config, &config, locked).with_approvals(args.approvals),
    )?;
    let host = Arc::new(setup::open_host_keeping(&args.config, &storage, engine)?);
    let prepared = setup::prepare_with(&host, (&args.config, &config), locked, output).await?;
    let room = RandomIds.run();
    let style = RunStyle {
        output,
        trace: args.trace,
        verbose: args.verbose,
        approvals: args.approvals,
        questions: Questions::Prompt,
    };
    let context = RunContext::new(&prepared, &args.config, &storage, style, &interrupts)?;
    // The finish that `read_turns` adds for a comparison is no action of the log.
    let count = plural((turns.len() - usize::from(args.compare)) as u64, "action", "actions");
    let mut options = RunOptions { ids: Arc::new(room.clone()), ..context.options(&storage) };
    let recorded = Arc::new(RecordedRun::new(&room));
    if args.compare {
        options.subscribers = options.subscribers.with(Arc::clone(&recorded) as _);
    }
    if !output.result_only() {
        head::print(&prepared, Some(&room), loading.elapsed());
        stderr::note(format_args!("replaying {count} of the log\n"));
    }
    context.legend();
    let started = Instant::now();
    interrupts.run_begins();
    let run = prepared
        .start(RunInput { replay: turns, ..RunInput::from(task) }, options)
        .map_err(|failure| unkept(&failure, &room, &storage))?;
    let outcome = context.follow(run.handle(), run.outcome(), (&room, &storage, &host)).await?;
    let end = || context.end(&outcome, started, (&room, &storage));
    if !args.compare {
        return end();
    }
    let compared = compare::compare(&loaded.events, recorded.take(), &outcome.reason);
    // With --json, the result of the run is the last line.
    let code = if output.json { exit::OK } else { end()? };
    let agrees = compare::report(&compared, loaded.era, output)?;
    let code = if output.json { end()? } else { code };
    Ok(if code == exit::OK && !agrees { exit::FAILED } else { code })
}

/// Returns the task of a log, and its actions as turns.
fn read_turns(loaded: &Loaded, args: &TrajectoryReplay) -> Result<(String, Vec<Turn>), CliError> {
    let file = show_path(&args.file);
    let Replay { task, actions } = Replay::of(&loaded.events);
    let Some(task) = task else {
        let what = format!("{file} has no message of a user, so there is no task to run");
        return Err(CliError::usage(what)
            .hint("`conclave trajectory show --source user` lists the user's messages"));
    };
    let actions = if args.compare {
        let executed = AnsweredAction::list(&loaded.events);
        if executed.is_empty() {
            let what = format!("{file} has no action that an executor carries out");
            return Err(CliError::usage(what)
                .hint("`conclave trajectory show --type action` lists its actions"));
        }
        // Ends the run after the last action, so that no agent is called.
        let finish = Action::from(Finish::default());
        executed.into_iter().map(|it| it.action.clone()).chain([finish]).collect()
    } else {
        actions
    };
    let turns = actions
        .into_iter()
        .filter_map(|action| Turn::from_event(&TrajectoryEvent::from(action)))
        .collect();
    Ok((task, turns))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use conclave_core::trajectory::load;
    use conclave_core::types::action::Action;

    use super::*;
    use crate::args::{Cli, Command, Trajectory};

    fn args() -> TrajectoryReplay {
        match Cli::try_parse_from(["conclave", "trajectory", "replay", "log.json"]).unwrap().command
        {
            Command::Trajectory(Trajectory::Replay(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_task_is_the_users_and_the_turns_are_the_agents() {
        let loaded = load(
            r#"[{"id": 0, "source": "user", "action": "message", "args": {"content": "Count."}},
                {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "look"}},
                {"id": 2, "source": "agent", "cause": 1, "observation": "run", "content": "a", "extras": {"command": "ls", "command_id": -1}},
                {"id": 3, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {"agent_state": "running"}},
                {"id": 4, "source": "agent", "action": "finish", "args": {"outputs": {"content": "1"}}}]"#,
        );
        let (task, turns) = read_turns(&loaded, &args()).unwrap();
        assert_eq!(task, "Count.");
        let names: Vec<&str> = turns.iter().map(|turn| turn.action.name()).collect();
        assert_eq!(names, ["run", "finish"]);
        assert_eq!(turns[0].thought, "look");
        assert_eq!(turns[0].action, Action::Run { command: "ls".to_owned(), background: false });
    }

    #[test]
    fn a_log_without_a_user_message_is_not_replayed() {
        let action_only =
            load(r#"[{"source": "agent", "action": "run", "args": {"command": "ls"}}]"#);
        assert!(
            read_turns(&action_only, &args())
                .unwrap_err()
                .to_string()
                .contains("no message of a user")
        );
        let sdk = load(r#"[{"kind": "PauseEvent", "source": "user"}]"#);
        assert!(
            read_turns(&sdk, &args()).unwrap_err().to_string().contains("no message of a user")
        );
    }

    #[test]
    fn a_comparison_repeats_only_what_executors_carry_out_and_ends() {
        let loaded = load(
            r#"[{"source": "user", "action": "message", "args": {"content": "Count."}},
                {"source": "agent", "action": "message", "args": {"content": "How?", "wait_for_response": true}},
                {"source": "agent", "action": "run", "args": {"command": "ls"}},
                {"source": "agent", "action": "think", "args": {"thought": "one"}}]"#,
        );
        let compared = TrajectoryReplay { compare: true, ..args() };
        let (_, turns) = read_turns(&loaded, &compared).unwrap();
        let names: Vec<&str> = turns.iter().map(|turn| turn.action.name()).collect();
        assert_eq!(names, ["run", "finish"]);
        let idle = load(r#"[{"source": "user", "action": "message", "args": {"content": "Hi"}}]"#);
        let error = read_turns(&idle, &compared).unwrap_err().to_string();
        assert!(error.contains("no action that an executor carries out"), "{error}");
    }
}
