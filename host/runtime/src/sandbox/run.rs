//! Runs one call: waits for a permit, creates a store and an instance, runs, and drops everything.
//! Stores are never reused.

use std::time::{Duration, Instant};

use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{Store, StoreContextMut, UpdateDeadline};

use super::fault::{broken, fault};
use crate::imports::call::plugin_context::PluginContext;
use crate::imports::state::CallState;
use crate::sandbox::engine::Engine;
use crate::support::admission::CallPermits;
use crate::support::suspension::Parked;

/// The work of a call in a fresh instance; it runs again if the call was suspended.
pub(crate) trait GuestCall: Send + Sync {
    type Answer: Send;

    fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> impl Future<Output = wasmtime::Result<Self::Answer>> + Send;
}

/// Runs a call on code that need not be a loaded plugin yet. A call that waits long releases its
/// permits, and is replayed when the answer is there.
pub(crate) async fn run<E: GuestCall>(
    engine: &Engine,
    code: &InstancePre<CallState>,
    at_once: Option<&CallPermits>,
    // Boxed, because a future has room for each place that a value moves through.
    mut state: Box<CallState>,
    guest_call: &E,
) -> (Result<E::Answer, Fault>, CallReport) {
    state.core.suspension = engine.parking(at_once);
    let mut remaining =
        TimeLeft(Duration::from_millis(state.core.plugin.limits().wall_ms), Duration::ZERO);
    loop {
        // The plugin's own permit comes first, so that a waiting plugin holds no slot of the pool.
        let turn = match at_once {
            Some(permits) => Some(permits.take().await),
            None => None,
        };
        let slot = engine.slot().await;
        let began = Instant::now();
        state.core.began = engine.park_clock().now();
        // Boxed, so that a call which waits without a sandbox holds no part of an attempt.
        let attempt = Box::pin(attempt(engine, code, state, guest_call, remaining.0));
        let (end, ended) = attempt.await;
        remaining.take(began);
        state = ended;
        let parked = match end {
            AttemptEnd::Answer(answer) => return remaining.report(answer, state),
            AttemptEnd::Parked => engine.parked(),
        };
        // `parked` is counted before the permits are released, so the call is always counted
        // somewhere.
        drop((slot, turn));
        if state.core.replay.waits_for_tools() {
            // They have limits of their own, and a call of one may wait for an approver for hours.
            state.core.replay.parked_answer().await;
            drop(parked);
            state.begin_attempt();
            continue;
        }
        let began = Instant::now();
        // The wall clock also runs while the call is suspended.
        let is_late = tokio::select! {
            biased;
            () = state.core.replay.parked_answer() => false,
            () = engine.park_clock().sleep(remaining.0) => true,
        };
        drop(parked);
        remaining.take(began);
        if is_late {
            let fault = broken(FaultKind::Wall, &state.core.plugin);
            return remaining.report(Err(fault), state);
        }
        state.begin_attempt();
    }
}

/// The remaining and the used time of a call. Waiting for a permit does not count.
struct TimeLeft(Duration, Duration);

impl TimeLeft {
    fn take(&mut self, since: Instant) {
        let took = since.elapsed();
        self.0 = self.0.saturating_sub(took);
        self.1 += took;
    }

    fn report<T>(
        &self,
        answer: Result<T, Fault>,
        state: Box<CallState>,
    ) -> (Result<T, Fault>, CallReport) {
        let wall_us = u64::try_from(self.1.as_micros()).unwrap_or(u64::MAX);
        (answer, CallReport { wall_us, ..state.into_report() })
    }
}

/// How an attempt ended.
enum AttemptEnd<T> {
    Answer(Result<T, Fault>),
    Parked,
}

async fn attempt<E: GuestCall>(
    engine: &Engine,
    code: &InstancePre<CallState>,
    state: Box<CallState>,
    guest_call: &E,
    wall: Duration,
) -> (AttemptEnd<E::Answer>, Box<CallState>) {
    let mut started = false;
    let mut store = store(engine, *state);
    let outcome = tokio::time::timeout(wall, async {
        // Within the time limit, because the start function of a module is guest code.
        let instance = code.instantiate_async(&mut store).await?;
        started = true;
        guest_call.run(&mut store, &instance).await
    })
    .await;
    // The store is dropped first: after a trap or a timeout it must not be entered again.
    let mut state = Box::new(store.into_data());
    if let Ok(Err(error)) = &outcome
        && error.is::<Parked>()
        && state.core.meter.broken().is_none()
    {
        state.park();
        return (AttemptEnd::Parked, state);
    }
    // Flushed before the fault is built, because a panic message is only found there.
    let stderr = state.wasi.finish_output();
    let answer = match outcome {
        Ok(Ok(answer)) => match (state.core.replay.fault(), state.core.meter.broken()) {
            (Some(fault), _) => Err(fault),
            // The limit was exceeded where the import could not fail, and the guest ended before
            // the next tick.
            (None, Some(kind)) => Err(broken(kind, &state.core.plugin)),
            (None, None) => Ok(answer),
        },
        Ok(Err(error)) => Err(started_or_not(fault(&error, &state, &stderr), started)),
        Err(_) => {
            Err(broken(state.core.meter.broken().unwrap_or(FaultKind::Wall), &state.core.plugin))
        }
    };
    (AttemptEnd::Answer(answer), state)
}

/// Reports a trap during instantiation as `NotStarted`, since the guest has not run. Exceeded
/// limits keep their kind.
fn started_or_not(fault: Fault, started: bool) -> Fault {
    match fault.kind {
        FaultKind::Trap if !started => {
            Fault::new(FaultKind::NotStarted, format!("it could not be started: {}", fault.message))
        }
        _ => fault,
    }
}

/// A store with all limits set.
fn store(engine: &Engine, state: CallState) -> Store<CallState> {
    let plugin: &PluginContext = &state.core.plugin;
    let output = usize::try_from(plugin.limits().output).unwrap_or(usize::MAX);
    let handles = usize::try_from(plugin.limits().handles).unwrap_or(usize::MAX);
    let mut store = Store::new(engine.wasm(), state);
    store.limiter(|state| &mut state.core.meter);
    store.set_hostcall_fuel(output);
    store.set_max_component_handles(handles);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(on_tick);
    store
}

/// Counts the tick and yields. Only reads the store: changing it here is unsound (CVE-2026-104855).
fn on_tick(store: StoreContextMut<'_, CallState>) -> wasmtime::Result<UpdateDeadline> {
    store.data().core.replay.check()?;
    store.data().core.meter.tick().map_err(wasmtime::Error::new)?;
    // Tokio's own yield lets timers and sockets make progress, which a plain wake-up would delay.
    Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use wasmtime::component::Component;

    use super::*;
    use crate::imports::testing;
    use crate::sandbox::engine::EngineSettings;

    /// Blocks in a host thread, like an import that waits for the operating system.
    struct Blocked(Mutex<Option<mpsc::Receiver<()>>>);

    impl GuestCall for Blocked {
        type Answer = ();

        async fn run(&self, _: &mut Store<CallState>, _: &Instance) -> wasmtime::Result<()> {
            let waits = self.0.lock().unwrap().take().unwrap();
            let waited = tokio::task::spawn_blocking(move || waits.recv().is_ok()).await;
            Err(wasmtime::Error::msg(format!("it was let go: {waited:?}")))
        }
    }

    /// The epoch does not interrupt a call outside the guest.
    #[tokio::test]
    async fn the_wall_clock_stops_a_call_whose_import_blocks_a_thread() {
        let engine =
            Engine::new(&EngineSettings { slots: 1, ..EngineSettings::default() }).unwrap();
        let component =
            Component::new(engine.wasm(), wat::parse_str("(component)").unwrap()).unwrap();
        let code = engine.linker().instantiate_pre(&component).unwrap();
        let mut setup = testing::setup();
        setup.limits.wall_ms = 50;
        let (held_sender, waits) = mpsc::channel();
        let (answer, _) = run(
            &engine,
            &code,
            None,
            Box::new(testing::state(setup)),
            &Blocked(Mutex::new(Some(waits))),
        )
        .await;
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Wall);
        assert!(
            fault.message.contains("50 ms") && fault.message.contains("limits.wall"),
            "{}",
            fault.message
        );
        // The next call gets the only slot, although the thread still waits.
        let (answer, _) =
            run(&engine, &code, None, Box::new(testing::state(testing::setup())), &Nothing).await;
        assert!(answer.is_ok(), "{answer:?}");
        drop(held_sender);
    }

    struct Nothing;

    impl GuestCall for Nothing {
        type Answer = ();

        async fn run(&self, _: &mut Store<CallState>, _: &Instance) -> wasmtime::Result<()> {
            Ok(())
        }
    }
}
