//! A persistent room: a task is delegated and runs in a child room. Its result is delivered in a
//! turn of the agent that has the conversation, whose answer reaches the channel. RoomKit calls
//! this one cycle.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::delegation::Delegation;
use conclave_runtime::delivery::DeliveryState;
use conclave_runtime::ids::{ChannelId, TaskName};
use conclave_runtime::subscribe::Subscribers;
use conclave_runtime::{Host, RoomGuard, RoomHandle, RunOptions};
use tokio::sync::Semaphore;

use crate::BenchError;

/// The timeout for a message.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
entry = "front"
[plugins.front]
source = "agent_echo.wasm"
[plugins.worker]
source = "agent_echo.wasm"
[plugins.immediate]
source = "../stock/immediate.wasm"
grants.channels = ["terminal"]
[tasks.front]
agent = "front"
[tasks.worker]
agent = "worker"
delivery_strategy = "immediate"
result_delivery = "agent-turn"
budget = { turns = 4, cpu = "1 s", tasks = 0 }
[limits.run]
turns = 10_000_000
task_turns = 1_000_000
tasks = 1_000_000
tasks_at_once = 100_000
tool_calls = 1_000_000_000
history = "64 GiB"
cpu = "10 h"
wall = "10 h"
"#;

/// An open room.
pub(crate) struct Cycles {
    room: RoomHandle,
    _hosted: RoomGuard,
    said: Arc<Said>,
}

impl Cycles {
    pub(crate) async fn open(host: &Host, guests: &Path) -> Result<Self, BenchError> {
        Self::followed(host, guests, Subscribers::default()).await
    }

    /// Opens a room with subscribers.
    pub(crate) async fn followed(
        host: &Host,
        guests: &Path,
        subscribers: Subscribers,
    ) -> Result<Self, BenchError> {
        let folder = std::path::absolute(guests)
            .map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
        let config = Config::parse("delivery.toml", &folder.to_string_lossy(), CONFIG);
        let config = config.map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        let prepared =
            host.load(&config).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        let said = Arc::new(Said(Semaphore::new(0)));
        let options = RunOptions {
            channels: Arc::clone(&said) as Arc<dyn Channels>,
            subscribers,
            ..RunOptions::default()
        };
        let (room, hosted) =
            prepared.open_room(options).map_err(|error| BenchError::Conclave(error.to_string()))?;
        Ok(Self { room, _hosted: hosted, said })
    }

    /// Runs one task, from the request to the answer on the channel.
    pub(crate) async fn one(&self) -> Result<(), BenchError> {
        self.delegate().await?;
        self.said.next().await
    }

    /// Requests `tasks` tasks at once, and returns the average time until all were delivered.
    pub(crate) async fn at_once(&self, tasks: u32) -> Result<Duration, BenchError> {
        let before = self.delivered();
        let began = Instant::now();
        for _ in 0..tasks {
            self.delegate().await?;
        }
        while self.delivered() < before + tasks as usize {
            self.said.next().await?;
        }
        let took = began.elapsed();
        self.said.forget();
        Ok(took / tasks)
    }

    async fn delegate(&self) -> Result<(), BenchError> {
        self.delegation().await
    }

    /// Returns the request of one task, which can be sent while others wait for their replies.
    pub(crate) fn delegation(&self) -> impl Future<Output = Result<(), BenchError>> + Send + use<> {
        let room = self.room.clone();
        let delegation = Delegation {
            worker: "worker".to_owned(),
            description: crate::rows::QUESTION.to_owned(),
            ..Delegation::default()
        };
        async move {
            let asked = room.delegate(delegation).await;
            asked.map(drop).map_err(|refusal| BenchError::Answer(refusal.message))
        }
    }

    fn delivered(&self) -> usize {
        self.room
            .tasks()
            .iter()
            .filter(|task| task.delivery.state == DeliveryState::Delivered)
            .count()
    }
}

/// A channel that counts messages.
struct Said(Semaphore);

impl Said {
    async fn next(&self) -> Result<(), BenchError> {
        match tokio::time::timeout(PATIENCE, self.0.acquire()).await {
            Ok(Ok(said)) => {
                said.forget();
                Ok(())
            }
            _ => Err(BenchError::Answer("a result was not delivered".to_owned())),
        }
    }

    fn forget(&self) {
        while let Ok(said) = self.0.try_acquire() {
            said.forget();
        }
    }
}

impl Channels for Said {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        self.0.add_permits(1);
        Box::pin(std::future::ready(Ok(())))
    }
}
