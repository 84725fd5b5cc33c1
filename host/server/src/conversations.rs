//! The conversations of a server: each a persistent room in one store, which is resumed when the
//! server starts again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use conclave_core::config::ServerConfig;
use conclave_core::inspect::pending_calls::PendingCalls;
use conclave_core::inspect::transcript::Transcript;
use conclave_core::journal::pending_work::WaitKey;
use conclave_core::setup::Setup;
use conclave_core::setup::plugin_query::{ChannelReception, ChannelRequest};
use conclave_core::types::channel::Binding;
use conclave_core::types::ids::{
    CHANNEL_PREFIX, ChannelId, Millis, OPERATOR, Principal, RoomId, WEBHOOK_PREFIX,
};
use conclave_core::types::request::{Refusal, RefusalCode};
use conclave_runtime::endpoints::{HookRefusal, HookRequest};
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::journal::Journals;
use conclave_runtime::store::{RunFilter, RunRow, Store, StoreAddress, StoreError, StoreReader};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::webhook::TOLERANCE;
use conclave_runtime::{
    LoopStop, Prepared, RoomGuard, RoomHandle, RunInput, RunOptions, SessionError,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::conversation::{Conversation, ConversationRow, WebChannel};
use crate::current_config::CurrentConfig;
use crate::error::ServerError;
use crate::hooks::HookReports;
use crate::operator::Operator;
use crate::readers::Readers;
use crate::runs::{Later, Runs};

/// Conversations that are open at once. Each holds its histories in memory.
const OPEN: usize = 64;
/// Conversations of one channel of a plugin that are open at once.
const OPEN_OF_CHANNEL: usize = OPEN / 2;
/// The answer to users of the page after a failure. The operator sees the reason.
pub(crate) const FAILED: &str = "the server failed, and its operator knows why";
/// The answer to users for a room that has ended.
const OVER: &str = "its run has ended";

/// The conversations of a config.
pub struct Conversations {
    current: Arc<CurrentConfig>,
    /// The name of the first room; the others have a number behind it.
    name: RoomId,
    channel: Option<ChannelId>,
    journals: Arc<dyn Journals>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    operator: Arc<dyn Operator>,
    /// Requests that a plugin could not read.
    failed_reads: HookReports,
    store: StoreAddress,
    writer: Store,
    runs: Arc<Runs>,
    config: PathBuf,
    /// The number of this process, in the ids of events.
    epoch: String,
    rooms: Mutex<BTreeMap<u64, Arc<Conversation>>>,
    /// The number of the room that began last, also of one that failed.
    last: AtomicU64,
    /// Held while a webhook finds its conversation.
    hooks: tokio::sync::Mutex<()>,
    /// Held while a conversation begins, so that two do not get the same number.
    beginning: tokio::sync::Mutex<()>,
    loops: Mutex<RoomLoops>,
}

/// The loops of rooms in this process.
#[derive(Default)]
struct RoomLoops {
    stops: Vec<LoopStop>,
    /// The tasks that wait for the end of each.
    attending: JoinSet<()>,
    is_stopped: bool,
}

/// The parts that a server brings for its rooms.
pub struct RoomParts {
    /// The loaded config.
    pub prepared: Prepared,
    /// Its `[server]`.
    pub server: ServerConfig,
    /// The name of the first room; the others have a number behind it.
    pub name: RoomId,
    /// The channel of kind `web` that is served; without one there are no conversations, only runs.
    pub channel: Option<ChannelId>,
    /// The journals of the store.
    pub journals: Arc<dyn Journals>,
    /// Subscribers of all rooms, besides their pages.
    pub subscribers: Vec<Arc<dyn Subscriber>>,
    /// Where failures are reported.
    pub operator: Arc<dyn Operator>,
    /// The journals of the same store for runs that people start by the API, under the command
    /// [`API_RUN`](crate::API_RUN).
    pub run_journals: Arc<dyn Journals>,
    /// The store with the journals, which this process has open.
    pub store: Store,
    /// The absolute path of the config, as the store has it.
    pub config: PathBuf,
}

impl Conversations {
    /// Creates the conversations of a config; none runs yet.
    #[must_use]
    pub fn new(parts: RoomParts) -> Self {
        let RoomParts {
            prepared,
            server,
            name,
            channel,
            journals,
            subscribers,
            operator,
            run_journals,
            store: writer,
            config,
        } = parts;
        let store = writer.address().clone();
        let current = Arc::new(CurrentConfig::new(prepared, server));
        let runs = Arc::new(Runs::new(
            Arc::clone(&current),
            run_journals,
            subscribers.clone(),
            Arc::clone(&operator),
            store.clone(),
        ));
        Self {
            current,
            name,
            channel,
            journals,
            subscribers,
            operator,
            failed_reads: HookReports::default(),
            store,
            writer,
            runs,
            config,
            epoch: RandomIds.run().to_string(),
            rooms: Mutex::default(),
            last: AtomicU64::new(0),
            hooks: tokio::sync::Mutex::default(),
            beginning: tokio::sync::Mutex::default(),
            loops: Mutex::default(),
        }
    }

    /// Stops the loops of all rooms and runs, and returns when none of them writes any more. In the
    /// store they are as after a crash, and the next server resumes them.
    pub(crate) async fn stop_loops(&self) {
        let mut attending = {
            let mut loops = self.loops();
            loops.is_stopped = true;
            loops.stops.drain(..).for_each(|stop| stop.stop());
            std::mem::take(&mut loops.attending)
        };
        self.runs.stop_loops().await;
        while attending.join_next().await.is_some() {}
    }

    pub(crate) fn channel(&self) -> Option<&ChannelId> {
        self.channel.as_ref()
    }

    /// The setup of rooms that begin now.
    pub(crate) fn setup(&self) -> Arc<Setup> {
        Arc::clone(self.current.prepared().setup())
    }

    /// Takes the config for the rooms that begin from now on.
    pub(crate) fn replace(&self, prepared: Prepared, server: ServerConfig) {
        self.current.replace(prepared, server);
    }

    pub(crate) fn current(&self) -> &Arc<CurrentConfig> {
        &self.current
    }

    /// The store as it is open for all that this process writes.
    pub(crate) fn open_store(&self) -> &Store {
        &self.writer
    }

    pub(crate) fn operator(&self) -> &Arc<dyn Operator> {
        &self.operator
    }

    /// Forgets ended conversations that the store has no more.
    pub(crate) fn forget(&self, removed: &[RoomId]) {
        self.rooms().retain(|_, room| room.is_open() || !removed.contains(room.room()));
    }

    pub(crate) fn store(&self) -> &StoreAddress {
        &self.store
    }

    /// New readers of the store.
    pub(crate) fn readers(&self) -> Readers {
        Readers::new(self.store().clone(), Arc::clone(&self.operator))
    }

    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// The loaded config for rooms that begin now.
    pub(crate) fn prepared(&self) -> Arc<Prepared> {
        self.current.prepared()
    }

    /// The runs that people started by the API.
    pub(crate) fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }

    /// The store, open for writing, to end a run that no process has.
    ///
    /// # Errors
    /// `InUse` if it is a folder: this process has all of its runs.
    pub(crate) fn writer(&self) -> Result<Store, StoreError> {
        match self.writer.folder() {
            Some(_) => {
                let (store, who) = (self.store.clone(), "this server".to_owned());
                Err(StoreError::InUse { store, who })
            }
            None => Ok(self.writer.clone()),
        }
    }

    /// Verifies a webhook, and returns the name of its sender. The operator sees why a secret cannot
    /// be read.
    pub(crate) async fn verify_hook(
        &self,
        request: HookRequest<'_>,
    ) -> Result<String, HookRefusal> {
        let prepared = self.current.prepared();
        let verified = prepared.endpoints().verify(request).await;
        if let Err(HookRefusal::Failed(what)) = &verified {
            self.operator.room_failed(&self.name, what);
        }
        verified
    }

    /// Whether webhooks come in on the channel.
    pub(crate) fn takes_hooks(&self, channel: &ChannelId) -> bool {
        self.current.prepared().endpoints().serves(channel)
    }

    /// Checks that messages come in on a channel. Its conversations have the access with which they
    /// began; that of the config which was read last counts too, for each message.
    ///
    /// # Errors
    /// `no_access`.
    pub(crate) fn check_access(&self, channel: &ChannelId) -> Result<(), Refusal> {
        let prepared = self.current.prepared();
        match prepared.setup().channels.get(channel) {
            Some(binding) if !binding.access.may_write() => {
                let what = format!("nothing comes in on the channel {channel}");
                Err(Refusal::new(RefusalCode::NoAccess, what))
            }
            _ => Ok(()),
        }
    }

    /// The conversation for a message of a webhook, signed at that time: the one that it names, if the
    /// channel reads along in it or began it; else the channel's own, which begins with its first
    /// message.
    ///
    /// # Errors
    /// `room_not_found`; `room_closed`; or as [`begin`](Self::begin).
    pub(crate) async fn of_hook(
        &self,
        channel: &ChannelId,
        requested: Option<&str>,
        signed: Millis,
    ) -> Result<Arc<Conversation>, Refusal> {
        let owner = Principal(format!("{WEBHOOK_PREFIX}{channel}").into());
        if let Some(id) = requested {
            let reads = |room: &Arc<Conversation>| {
                let binding = room.handle()?.bindings().get(channel).cloned();
                binding.filter(Binding::can_receive)
            };
            let found = self.find(id).filter(|it| *it.owner() == owner || reads(it).is_some());
            let missing = || format!("there is no conversation {id}");
            return found.ok_or_else(|| Refusal::new(RefusalCode::RoomNotFound, missing()));
        }
        self.own_of(owner, signed).await
    }

    /// Has the plugin of a channel read a request. The operator sees why it could not.
    pub(crate) async fn read_hook(
        &self,
        channel: &ChannelId,
        request: ChannelRequest,
    ) -> Result<ChannelReception, HookRefusal> {
        let prepared = self.current.prepared();
        let read = prepared.endpoints().receive(&**prepared.calls(), channel, request).await;
        // Once a minute, as for refused requests: no stranger fills a log.
        if let Err(HookRefusal::Failed(what)) = &read
            && self.failed_reads.due(Instant::now()).is_some()
        {
            self.operator.room_failed(&self.name, what);
        }
        read
    }

    /// The conversation of an address at the service of a channel, which begins with its first
    /// message.
    ///
    /// # Errors
    /// `room_closed`; `limit_reached` if the channel has too many; or as [`begin`](Self::begin).
    pub(crate) async fn of_address(
        &self,
        channel: &ChannelId,
        address: &str,
        at: Millis,
    ) -> Result<Arc<Conversation>, Refusal> {
        let of_channel = format!("{CHANNEL_PREFIX}{channel}/");
        let owner = Principal(format!("{of_channel}{address}").into());
        let is_known = self.rooms().values().any(|room| *room.owner() == owner);
        let is_of_channel =
            |room: &&Arc<Conversation>| room.is_open() && room.owner().0.starts_with(&of_channel);
        // The people of one service must not take the places of all others.
        if !is_known && self.rooms().values().filter(is_of_channel).count() >= OPEN_OF_CHANNEL {
            let what = format!("{OPEN_OF_CHANNEL} conversations of {channel} are open");
            return Err(Refusal::new(RefusalCode::LimitReached, what));
        }
        self.own_of(owner, at).await
    }

    /// The conversation that a channel's messages have of their own, for a message that was signed at
    /// that time or before.
    async fn own_of(&self, owner: Principal, signed: Millis) -> Result<Arc<Conversation>, Refusal> {
        // One at a time, so that two first messages do not begin two conversations.
        let _one = self.hooks.lock().await;
        let own = self.rooms().values().rev().find(|room| *room.owner() == owner).cloned();
        let Some(own) = own else { return self.begin(owner).await };
        // A message that the one before accepted must not begin the next: its signature is valid for
        // no longer than this after its end.
        let is_new = own.ended_at().is_some_and(|end| signed.since(end) > TOLERANCE * 1000);
        match own.is_open() || !is_new {
            true => Ok(own),
            false => self.begin(owner).await,
        }
    }

    /// A receiver that is notified of records of this run; `None` for a run of another process.
    pub(crate) fn changes(&self, run: &RoomId) -> Option<watch::Receiver<()>> {
        let conversation = self.find(run.as_str()).map(|conversation| conversation.records());
        conversation.or_else(|| self.runs.changes(run))
    }

    /// Reports to the operator that the store cannot be read.
    pub(crate) fn report_unreadable(&self, error: &StoreError) {
        self.operator.store_unreadable(error);
    }

    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Conversation>> {
        self.rooms().values().find(|room| room.room().as_str() == id).cloned()
    }

    /// The list of those conversations whose owner is visible, the newest first.
    pub(crate) fn rows(&self, is_visible: impl Fn(&Principal) -> bool) -> Vec<ConversationRow> {
        let rooms = self.rooms();
        let visible = rooms.values().rev().filter(|room| is_visible(room.owner()));
        visible.map(|room| room.row()).collect()
    }

    /// Resumes the stored conversations, and the runs that people started by the API. Returns the
    /// number of those that are open; with
    /// `begins_first`, one begins if none is.
    ///
    /// # Errors
    /// If the store cannot be read, or a room cannot be resumed or begin.
    pub async fn resume(
        &self,
        reader: &StoreReader,
        begins_first: bool,
    ) -> Result<usize, ServerError> {
        // Without the channel, conversations of before stay as they are.
        let channel = self.channel.as_ref();
        let rows = channel.map(|_| reader.runs(&RunFilter::default())).transpose()?;
        for row in rows.into_iter().flatten() {
            let Some(number) = self.number_of(&row.run) else { continue };
            // New conversations get numbers above those of all stored ones, also of closed ones.
            self.last.fetch_max(number, Ordering::Relaxed);
            let conversation = self.resume_room(reader, &row).await?;
            self.rooms().insert(number, conversation);
        }
        // Nor that of one that retention removed: its address would lead to another conversation.
        for removed in reader.removed_runs()? {
            self.last.fetch_max(self.number_of(&removed.run).unwrap_or(0), Ordering::Relaxed);
        }
        let open = self.rooms().values().filter(|room| room.is_open()).count();
        self.runs.resume(reader, |row| row.config.as_deref() == Some(self.config())).await?;
        if open == 0 && begins_first && channel.is_some() {
            self.begin(Principal(OPERATOR.into())).await.map_err(ServerError::Refused)?;
        }
        Ok(open)
    }

    /// Begins a new conversation of this person.
    ///
    /// # Errors
    /// `unknown_channel` without a channel for it, `limit_reached` if too many are open,
    /// `room_closed` if its room cannot be opened.
    pub(crate) async fn begin(&self, owner: Principal) -> Result<Arc<Conversation>, Refusal> {
        let Some(channel) = &self.channel else { return Err(no_channel()) };
        // One at a time, so that two people do not both take the last free place.
        let _beginning = self.beginning.lock().await;
        let open = self.rooms().values().filter(|room| room.is_open()).count();
        if open >= OPEN {
            let what = format!(
                "{OPEN} conversations are open, and no more may be; the operator ends one with `conclave stop ROOM`"
            );
            return Err(Refusal::new(RefusalCode::LimitReached, what));
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let room = self.room_of(number);
        let transcript = Transcript::new(room.clone(), channel.clone());
        let conversation =
            Conversation::new(room, owner, transcript, PendingCalls::default(), self.store.clone());
        let options = self.options(&conversation, channel);
        let session = self.current.prepared().session(options);
        let session = session.map_err(|error| self.failed(&conversation, &error))?;
        let input = RunInput { channel: Some(channel.clone()), ..RunInput::default() };
        let (handle, guard) = session.open_room(input);
        self.attend(&conversation, handle.clone(), guard);
        // Before anything is awaited: the room runs now, so people must find it.
        self.rooms().insert(number, Arc::clone(&conversation));
        match self.bind_channel(&handle, channel).await {
            // Its loop failed, and the operator has seen the reason.
            Err(refusal) if refusal.error == RefusalCode::RoomClosed => {
                Err(Refusal::new(RefusalCode::RoomClosed, FAILED))
            }
            bound => bound.map(|()| conversation),
        }
    }

    /// Reports a failure to the operator. Returns the answer for users of the page, which holds no
    /// path of this machine.
    fn failed(&self, conversation: &Conversation, error: &dyn std::fmt::Display) -> Refusal {
        self.operator.room_failed(conversation.room(), error);
        Refusal::new(RefusalCode::RoomClosed, FAILED)
    }

    async fn resume_room(
        &self,
        reader: &StoreReader,
        row: &RunRow,
    ) -> Result<Arc<Conversation>, ServerError> {
        let channel = self.channel.as_ref().ok_or_else(|| ServerError::Refused(no_channel()))?;
        let (room, owner) = (&row.run, Principal(row.principal.as_str().into()));
        let transcript =
            Transcript::of_stored(room.clone(), channel.clone(), |room| reader.records(room))?;
        let waits = reader.approvals(Some(room))?;
        let pending = PendingCalls::of_stored(waits.into_iter().filter_map(|wait| {
            let WaitKey::Call(call) = wait.wait.key else { return None };
            Some(((wait.room, call), wait.wait.request?.tool))
        }));
        let conversation =
            Conversation::new(room.clone(), owner, transcript, pending, self.store.clone());
        let options = self.options(&conversation, channel);
        let session = self.current.prepared().reopen(room, options).await;
        let session = session?;
        if session.is_cut_off() {
            self.operator.components_changed(room, session.changed_components());
            let (handle, guard) = session.resume_room();
            self.attend(&conversation, handle.clone(), guard);
            match self.bind_channel(&handle, channel).await {
                // It was closed, and its work comes to its end.
                Err(refusal) if refusal.error == RefusalCode::RoomClosed => {}
                bound => bound.map_err(ServerError::Refused)?,
            }
        } else {
            conversation.end(OVER.to_owned());
        }
        Ok(conversation)
    }

    /// Binds the served channels of a room as the config has them: the page's, and those that the
    /// host serves itself. A resumed room has those of before.
    async fn bind_channel(&self, handle: &RoomHandle, channel: &ChannelId) -> Result<(), Refusal> {
        let prepared = self.current.prepared();
        for channel in std::iter::once(channel).chain(prepared.endpoints().channels()) {
            match prepared.setup().channels.get(channel) {
                Some(binding) if handle.bindings().get(channel) != Some(binding) => {
                    handle.bind(channel.clone(), binding.clone()).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn options(&self, conversation: &Arc<Conversation>, channel: &ChannelId) -> RunOptions {
        // The page comes first: the others may be slow.
        let page = std::iter::once(Arc::clone(conversation) as Arc<dyn Subscriber>);
        RunOptions {
            ids: Arc::new(conversation.room().clone()),
            principal: conversation.owner().clone(),
            channels: Arc::new(WebChannel(channel.clone())),
            approver: Arc::new(Later),
            journals: Arc::clone(&self.journals),
            subscribers: Subscribers::new(page.chain(self.subscribers.iter().cloned())),
            ..RunOptions::default()
        }
    }

    /// Watches the loop of a room.
    fn attend(&self, conversation: &Arc<Conversation>, handle: RoomHandle, guard: RoomGuard) {
        conversation.begin(handle);
        let (conversation, operator) = (Arc::clone(conversation), Arc::clone(&self.operator));
        let stop = guard.loop_stop();
        let attending = async move {
            match guard.closed().await {
                Ok(_) => conversation.end(OVER.to_owned()),
                // The server stops it, and the next one resumes it.
                Err(SessionError::Interrupted { .. }) => {}
                Err(error) => {
                    operator.room_failed(conversation.room(), &error);
                    conversation.end(FAILED.to_owned());
                }
            }
        };
        let mut loops = self.loops();
        while loops.attending.try_join_next().is_some() {}
        loops.stops.retain(|stop| !stop.is_over());
        if loops.is_stopped {
            stop.stop();
        }
        loops.stops.push(stop);
        loops.attending.spawn(attending);
    }

    fn room_of(&self, number: u64) -> RoomId {
        match number {
            1 => self.name.clone(),
            number => RoomId::from(format!("{}.{number}", self.name)),
        }
    }

    /// The number of a room; `None` for a room of another name.
    fn number_of(&self, room: &RoomId) -> Option<u64> {
        let rest = room.as_str().strip_prefix(self.name.as_str())?;
        match rest {
            "" => Some(1),
            rest => rest.strip_prefix('.')?.parse().ok(),
        }
    }

    fn loops(&self) -> MutexGuard<'_, RoomLoops> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rooms(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Conversation>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_channel() -> Refusal {
    let what = "the config has no channel of kind `web`, so it has runs and no conversations";
    Refusal::new(RefusalCode::UnknownChannel, what)
}
