//! One call: wait for a place, make a store and an instance, run, take the answer or the fault, drop everything. No store is used again.

use std::time::{Duration, Instant};

use conclave_core::fault::{CallReport, Fault, FaultKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasmtime::component::Instance;
use wasmtime::{Store, StoreContextMut, UpdateDeadline};

use super::fault::{broken, fault};
use super::state::{CallState, Lent};
use super::{Sandbox, grantee::Grantee};
use crate::calls::CallStart;
use crate::engine::Engine;
use crate::secrets::scrub;

/// What is done in a fresh instance.
pub(crate) trait Errand: Send {
    type Answer: Send;

    fn run(self, store: &mut Store<CallState>, instance: &Instance) -> impl Future<Output = wasmtime::Result<Self::Answer>> + Send;
}

impl Sandbox {
    /// Runs an errand in a fresh sandbox, within the plugin's limits.
    ///
    /// The plugin's own queue comes first: a plugin with a thousand waiting calls holds no more of the pool than it may use.
    pub(super) async fn run<E>(&self, start: CallStart, lent: Lent, errand: E) -> (Result<E::Answer, Fault>, CallReport)
    where
        E: Errand,
        E::Answer: Serialize + DeserializeOwned,
    {
        let _turn = self.at_once.acquire().await.expect("the semaphore is never closed");
        let state = CallState::new(self.grantee.clone(), start, lent);
        let (answer, report) = run(self.plugin.engine(), self.plugin.code(), state, errand).await;
        scrub::ended(&self.grantee, answer, report)
    }
}

/// Runs an errand on code that need not be a loaded plugin yet.
pub(crate) async fn run<E: Errand>(
    engine: &Engine,
    code: &wasmtime::component::InstancePre<CallState>,
    state: CallState,
    errand: E,
) -> (Result<E::Answer, Fault>, CallReport) {
    let _slot = engine.slot().await;
    let began = Instant::now();
    let wall = Duration::from_millis(state.grantee.limits().wall_ms);
    let mut started = false;
    let mut store = store(engine, state);
    let outcome = tokio::time::timeout(wall, async {
        let instance = code.instantiate_async(&mut store).await?;
        started = true;
        errand.run(&mut store, &instance).await
    })
    .await;
    // The store goes before anything else: after a trap or a timeout it must not be entered again.
    let state = store.into_data();
    let stderr = state.finish_output();
    let answer = match outcome {
        Ok(Ok(answer)) => match state.meter.broken() {
            // Counted where it could not be refused, and the guest ended before the next tick.
            Some(kind) => Err(broken(kind, &state.grantee)),
            None => Ok(answer),
        },
        Ok(Err(error)) => Err(started_or_not(fault(&error, &state, &stderr), started)),
        Err(_) => Err(broken(state.meter.broken().unwrap_or(FaultKind::Wall), &state.grantee)),
    };
    let mut report = state.into_report();
    report.wall_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    (answer, report)
}

/// A guest that fails while it starts has done nothing yet, unless it broke a limit.
fn started_or_not(fault: Fault, started: bool) -> Fault {
    match fault.kind {
        FaultKind::Trap if !started => Fault::new(FaultKind::NotStarted, format!("it could not be started: {}", fault.message)),
        _ => fault,
    }
}

/// A store with every limit set.
fn store(engine: &Engine, state: CallState) -> Store<CallState> {
    let grantee: &Grantee = &state.grantee;
    let output = usize::try_from(grantee.limits().output).unwrap_or(usize::MAX);
    let handles = usize::try_from(grantee.limits().handles).unwrap_or(usize::MAX);
    let mut store = Store::new(engine.wasm(), state);
    store.limiter(|state| &mut state.meter);
    store.set_hostcall_fuel(output);
    store.set_max_component_handles(handles);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(on_tick);
    store
}

/// Counts the tick and lets others run. The store is only looked at: changing it here is not sound (CVE-2026-104855).
fn on_tick(store: StoreContextMut<'_, CallState>) -> wasmtime::Result<UpdateDeadline> {
    store.data().meter.tick().map_err(wasmtime::Error::new)?;
    // Tokio's own yield lets timers and sockets be looked at, which a plain wake-up would put off.
    Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use wasmtime::component::Component;

    use super::*;
    use crate::engine::EngineSettings;
    use crate::sandbox::testing;

    /// Waits in a thread of the host's, as an import does that the operating system keeps waiting.
    struct Blocked(mpsc::Receiver<()>);

    impl Errand for Blocked {
        type Answer = ();

        async fn run(self, _: &mut Store<CallState>, _: &Instance) -> wasmtime::Result<()> {
            let waited = tokio::task::spawn_blocking(move || self.0.recv().is_ok()).await;
            Err(wasmtime::Error::msg(format!("it was let go: {waited:?}")))
        }
    }

    /// The epoch stops nobody who is outside of the guest.
    #[tokio::test]
    async fn the_wall_clock_stops_a_call_whose_import_blocks_a_thread() {
        let engine = Engine::new(&EngineSettings { slots: 1, ..EngineSettings::default() }).unwrap();
        let component = Component::new(engine.wasm(), wat::parse_str("(component)").unwrap()).unwrap();
        let code = engine.linker().instantiate_pre(&component).unwrap();
        let mut setup = testing::setup();
        setup.limits.wall_ms = 50;
        let (held, waits) = mpsc::channel();
        let (answer, _) = run(&engine, &code, testing::state(setup), Blocked(waits)).await;
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Wall);
        assert!(fault.message.contains("50 ms") && fault.message.contains("limits.wall"), "{}", fault.message);
        // The next call finds the only place free, though the thread still waits.
        let (answer, _) = run(&engine, &code, testing::state(testing::setup()), Nothing).await;
        assert!(answer.is_ok(), "{answer:?}");
        drop(held);
    }

    struct Nothing;

    impl Errand for Nothing {
        type Answer = ();

        async fn run(self, _: &mut Store<CallState>, _: &Instance) -> wasmtime::Result<()> {
            Ok(())
        }
    }
}
