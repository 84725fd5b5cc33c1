//! The baseline: the least that fences and appends the same bytes, as one statement and one round
//! trip. It has no chain, no lists, and an index only to find a room's records.

use std::sync::Arc;

use conclave_test_servers::TestDatabase;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::steps::{RECORDS, event};
use crate::BenchError;

const TABLES: &str = "
    CREATE TABLE bare_rooms (room TEXT PRIMARY KEY, epoch BIGINT NOT NULL, records BIGINT NOT NULL)
        WITH (fillfactor = 70);
    CREATE TABLE bare_events (room TEXT NOT NULL, seq BIGINT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (room, seq))";

const APPEND: &str = "
    WITH fenced AS (UPDATE bare_rooms SET records = records + cardinality($3::BIGINT[])
        WHERE room = $1 AND epoch = 1 AND records = $2 RETURNING room)
    INSERT INTO bare_events (room, seq, body)
        SELECT fenced.room, n.seq, n.body FROM fenced, unnest($3::BIGINT[], $4::TEXT[]) AS n (seq, body)";

/// Rooms with a connection each.
pub(super) struct BareRooms {
    rooms: Vec<Arc<BareRoom>>,
    /// The number of records of each.
    next: u64,
}

struct BareRoom {
    room: String,
    client: Client,
    append: Statement,
}

impl BareRooms {
    pub(super) async fn open(database: &TestDatabase, rooms: usize) -> Result<Self, BenchError> {
        super::connect(database).await?.batch_execute(TABLES).await?;
        let mut opened = Vec::new();
        for number in 0..rooms {
            let (room, client) = (format!("room-{number}"), super::connect(database).await?);
            client.execute("INSERT INTO bare_rooms VALUES ($1, 1, 0)", &[&room]).await?;
            let append = client.prepare(APPEND).await?;
            opened.push(Arc::new(BareRoom { room, client, append }));
        }
        Ok(Self { rooms: opened, next: 0 })
    }

    /// Appends the records of a step to each room.
    pub(super) async fn append(&mut self) -> Result<(), BenchError> {
        let next = self.next;
        self.next += RECORDS;
        if let [room] = &self.rooms[..] {
            return room.append(next).await;
        }
        let mut appending = JoinSet::new();
        for room in &self.rooms {
            let room = Arc::clone(room);
            appending.spawn(async move { room.append(next).await });
        }
        while let Some(appended) = appending.join_next().await {
            appended.map_err(super::failed)??;
        }
        Ok(())
    }
}

impl BareRoom {
    async fn append(&self, next: u64) -> Result<(), BenchError> {
        let seqs: Vec<i64> = (next..next + RECORDS).map(u64::cast_signed).collect();
        let body = |seq| serde_json::to_string(&event(seq)).unwrap_or_default();
        let bodies: Vec<String> = (next..next + RECORDS).map(body).collect();
        let appended = self
            .client
            .execute(&self.append, &[&self.room, &next.cast_signed(), &seqs, &bodies])
            .await?;
        if appended == RECORDS {
            Ok(())
        } else {
            Err(BenchError::Answer("a bare append was fenced".to_owned()))
        }
    }
}
