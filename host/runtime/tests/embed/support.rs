//! An embedding program: its plugins, a config, and a record of all published events.

use std::sync::{Arc, Mutex};

use conclave_runtime::config::{Config, Problems};
use conclave_runtime::fault::{Fault, FaultKind};
use conclave_runtime::ids::RoomId;
use conclave_runtime::native::Plugin;
use conclave_runtime::notice::Notice;
use conclave_runtime::outcome::Outcome;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};

/// Returns a config with a task `desk` for the native plugin `desk`, and a native plugin `app` with
/// these lines.
pub(crate) fn config(app_lines: &str, more: &str) -> String {
    format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[plugins.app]\nsource = \"native:app\"\n{app_lines}\n[tasks.desk]\nagent = \"desk\"\n{more}\n"
    )
}

pub(crate) fn parse(text: &str) -> Config {
    Config::parse("app.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn host(native: impl IntoIterator<Item = Plugin>) -> Host {
    Host::new(HostOptions { native: native.into_iter().collect(), ..HostOptions::default() })
        .unwrap()
}

pub(crate) async fn prepared(native: impl IntoIterator<Item = Plugin>, text: &str) -> Prepared {
    host(native).load(&parse(text)).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the error of a config that must not load.
pub(crate) async fn refused(native: impl IntoIterator<Item = Plugin>, text: &str) -> Problems {
    host(native)
        .load(&parse(text))
        .await
        .map(drop)
        .expect_err("the config should be refused")
        .into()
}

/// A subscriber that records every event.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<Published>>>);

impl Subscriber for Told {
    fn on(&self, happening: &Published) {
        self.0.lock().unwrap().push(happening.clone());
    }
}

impl Told {
    pub(crate) fn happenings(&self) -> Vec<Published> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        let notice = |happening: Published| match happening.what {
            RunEvent::Notice { notice } => Some(notice),
            _ => None,
        };
        self.happenings().into_iter().filter_map(notice).collect()
    }

    /// Returns the fault of the only tool call.
    pub(crate) fn fault(&self) -> Fault {
        let faults: Vec<Fault> = self.notices().iter().filter_map(tool_fault).collect();
        assert_eq!(faults.len(), 1, "{:?}", self.notices());
        faults.into_iter().next().unwrap()
    }

    pub(crate) fn agent_faults(&self) -> Vec<FaultKind> {
        let fault = |notice: Notice| match notice {
            Notice::PluginFaulted { fault, .. } => Some(fault.kind),
            _ => None,
        };
        self.notices().into_iter().filter_map(fault).collect()
    }

    pub(crate) fn options(&self) -> RunOptions {
        RunOptions {
            ids: Arc::new(RoomId::from("test")),
            subscribers: Subscribers::new([Arc::new(self.clone()) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        }
    }
}

fn tool_fault(notice: &Notice) -> Option<Fault> {
    match notice {
        Notice::ToolAnswered { fault, .. } => fault.clone(),
        _ => None,
    }
}

pub(crate) async fn run(prepared: &Prepared, message: &str, options: RunOptions) -> Arc<Outcome> {
    prepared.start(Some(message.to_owned()), options).unwrap().outcome().await.unwrap()
}
