//! The conversion of records to rows of the store and back. Large fields become blobs, to which the
//! row refers. It does not depend on SQLite.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::journal::record::RecordTooDeep;
use conclave_core::protocol::event::{Event, Principal, READABLE_RULES, RULES, Record, RunOpening};
use conclave_core::setup::Setup;
use conclave_core::types::json_depth::{
    JSON_DEPTH_MAX, JsonError, from_json, is_deeper_than, is_too_deep,
};
use conclave_core::types::room_secret::RoomSecret;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The maximum size in bytes of JSON in a row; larger values become blobs.
pub(super) const LARGE: usize = 32 << 10;
/// The key in `parts` of a blob with the whole event, except for fields that are blobs themselves.
const WHOLE: &str = "*";
/// The number of setups cached as JSON, so that many runs of one config serialise theirs once.
const SETUPS: usize = 8;

/// A SHA-256 digest.
pub(super) type Hash = [u8; 32];

/// Bytes with their digest.
#[derive(Clone, Debug)]
pub(super) struct StoredBytes {
    /// The digest in lower-case hexadecimal.
    pub(super) sha256: String,
    pub(super) bytes: Arc<[u8]>,
}

/// A row of `events`, without its room and its number in the store.
#[derive(Clone, Debug)]
pub(super) struct EventRow {
    pub(super) seq: u64,
    pub(super) at: u64,
    pub(super) principal: Arc<str>,
    pub(super) rules: u32,
    /// The epoch of the host that wrote it; 0 in a store with one writing process.
    pub(super) epoch: u64,
    /// The event as JSON, without the fields in `parts`.
    pub(super) body: String,
    /// A JSON object from field names to digests.
    pub(super) parts: Option<String>,
}

/// The reason why a row is no valid record.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error("its bytes are not what was written")]
    Hash,
    #[error("the blob {0} that it refers to is not there, or is not what was written")]
    Blob(String),
    #[error("it is no record: {0}")]
    Malformed(String),
    #[error(
        "it was written by rules {rules}, with other names than those of this host (rules {RULES}). Use the host that wrote it."
    )]
    OtherRules { rules: u32 },
    /// The JSON is nested too deeply; checked before it is parsed.
    #[error(
        "it is nested deeper than {JSON_DEPTH_MAX} levels (record_too_deep): no host wrote it, the file was changed"
    )]
    TooDeep,
}

/// The reason why a record cannot be stored as a row.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRow {
    #[error(transparent)]
    TooDeep(#[from] RecordTooDeep),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Converts records to rows, with a cache of serialised setups.
#[derive(Default)]
pub(super) struct Rows(Mutex<Vec<(Arc<Setup>, StoredBytes)>>);

impl Rows {
    /// Returns the row of a record, and the blobs that it refers to.
    pub(super) fn of(&self, record: &Record) -> Result<(EventRow, Vec<StoredBytes>), NoRow> {
        // The events are destructured by name, so that a new field causes a compile error here.
        let (mut body, mut parts) = match &record.event {
            Event::RoomOpened { setup, opening, secret } => {
                self.opened("room-opened", setup, opening, Some(secret))?
            }
            Event::RunStarted { setup: Some(setup), opening } => {
                self.opened("run-started", setup, opening, None)?
            }
            event => (serde_json::to_string(event)?, BTreeMap::new()),
        };
        // A field that is stored as a part is one level deeper in the event.
        let is_deep = |part: &StoredBytes| {
            std::str::from_utf8(&part.bytes)
                .is_ok_and(|text| is_deeper_than(text, JSON_DEPTH_MAX - 1))
        };
        if is_too_deep(&body) || parts.values().any(is_deep) {
            return Err(RecordTooDeep { seq: record.seq }.into());
        }
        if body.len() > LARGE {
            body = split(&body, &mut parts)?;
        }
        let digests: BTreeMap<&str, &str> =
            parts.iter().map(|(field, part)| (field.as_str(), part.sha256.as_str())).collect();
        let digests = (!digests.is_empty()).then(|| serde_json::to_string(&digests)).transpose()?;
        let principal = Arc::clone(&record.principal.0);
        let row = EventRow {
            seq: record.seq,
            at: record.at.0,
            principal,
            rules: record.rules,
            epoch: record.epoch,
            body,
            parts: digests,
        };
        Ok((row, parts.into_values().collect()))
    }

    /// Returns the body and parts of an opening event.
    fn opened(
        &self,
        event: &str,
        setup: &Arc<Setup>,
        opening: &RunOpening,
        secret: Option<&RoomSecret>,
    ) -> Result<(String, BTreeMap<String, StoredBytes>), serde_json::Error> {
        #[derive(Serialize)]
        struct OpenedRow<'a> {
            event: &'a str,
            opening: &'a RunOpening,
            /// Written explicitly, because the event's own serialisation omits it.
            #[serde(skip_serializing_if = "Option::is_none")]
            secret: Option<String>,
        }
        let body = serde_json::to_string(&OpenedRow {
            event,
            opening,
            secret: secret.map(RoomSecret::to_hex),
        })?;
        // The setup is always a blob, because many runs share it.
        Ok((body, BTreeMap::from([("setup".to_owned(), self.setup(setup)?)])))
    }

    fn setup(&self, setup: &Arc<Setup>) -> Result<StoredBytes, serde_json::Error> {
        let mut setups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, part)) = setups.iter().find(|(known, _)| Arc::ptr_eq(known, setup)) {
            return Ok(part.clone());
        }
        let part = part(serde_json::to_vec(setup)?);
        if setups.len() >= SETUPS {
            setups.remove(0);
        }
        setups.push((Arc::clone(setup), part.clone()));
        Ok(part)
    }
}

pub(super) fn part(bytes: Vec<u8>) -> StoredBytes {
    StoredBytes { sha256: crate::support::digest::sha256(&bytes), bytes: bytes.into() }
}

/// Moves large fields into blobs; if the rest is still large, the whole event.
fn split(
    body: &str,
    parts: &mut BTreeMap<String, StoredBytes>,
) -> Result<String, serde_json::Error> {
    let mut fields: serde_json::Map<String, serde_json::Value> =
        from_json(body).map_err(|error| {
            serde_json::Error::io(std::io::Error::new(std::io::ErrorKind::InvalidData, error))
        })?;
    let event = fields.get("event").cloned();
    for (name, value) in std::mem::take(&mut fields) {
        let text = serde_json::to_string(&value)?;
        if text.len() > LARGE && name != "event" {
            parts.insert(name, part(text.into_bytes()));
        } else {
            fields.insert(name, value);
        }
    }
    let rest = serde_json::to_string(&fields)?;
    if rest.len() <= LARGE {
        return Ok(rest);
    }
    parts.insert(WHOLE.to_owned(), part(rest.into_bytes()));
    serde_json::to_string(&BTreeMap::from([("event", event)]))
}

impl EventRow {
    /// The event's name.
    pub(super) fn kind(&self) -> &str {
        let rest = self.body.split_once("\"event\":\"").map_or("", |(_, rest)| rest);
        rest.split('"').next().unwrap_or("")
    }

    /// The hash of the row's bytes. The exact bytes are in docs/reference/journal-format.md.
    pub(super) fn hash(&self, room: &str) -> Hash {
        let mut hash = Sha256::new();
        let mut text = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        text(room);
        text(&self.principal);
        text(&self.body);
        text(self.parts.as_deref().unwrap_or(""));
        hash.update(self.seq.to_be_bytes());
        hash.update(self.at.to_be_bytes());
        hash.update(self.rules.to_be_bytes());
        // Without an epoch the hash is that of the formats before it.
        if self.epoch > 0 {
            hash.update(self.epoch.to_be_bytes());
        }
        hash.finalize().into()
    }

    /// Returns the digests of the blobs that the row refers to, by field.
    pub(super) fn parts(&self) -> Result<BTreeMap<String, String>, RowError> {
        self.parts.as_deref().map_or_else(
            || Ok(BTreeMap::new()),
            |parts| serde_json::from_str(parts).map_err(|error| malformed(&error)),
        )
    }

    /// Returns the record as a line of JSON in the format of a JSON-lines journal.
    pub(super) fn line(
        &self,
        read: impl FnMut(&str) -> Option<Arc<[u8]>>,
    ) -> Result<String, RowError> {
        let principal =
            serde_json::to_string(&*self.principal).map_err(|error| malformed(&error))?;
        let event = self.event(read)?;
        let epoch = match self.epoch {
            0 => String::new(),
            epoch => format!("\"epoch\":{epoch},"),
        };
        Ok(format!(
            "{{\"seq\":{},\"at\":{},\"principal\":{principal},\"rules\":{},{epoch}{}",
            self.seq,
            self.at,
            self.rules,
            &event[1..]
        ))
    }

    pub(super) fn record(
        &self,
        read: impl FnMut(&str) -> Option<Arc<[u8]>>,
    ) -> Result<Record, RowError> {
        if self.rules < READABLE_RULES {
            return Err(RowError::OtherRules { rules: self.rules });
        }
        let event = from_json(&self.event(read)?).map_err(|error| match error {
            JsonError::TooDeep => RowError::TooDeep,
            JsonError::Malformed(error) => malformed(&error),
        })?;
        let principal = Principal(Arc::clone(&self.principal));
        Ok(Record {
            seq: self.seq,
            at: conclave_core::types::ids::Millis(self.at),
            principal,
            rules: self.rules,
            epoch: self.epoch,
            event,
        })
    }

    /// Returns the whole event as a JSON object.
    fn event(&self, mut read: impl FnMut(&str) -> Option<Arc<[u8]>>) -> Result<String, RowError> {
        let mut parts = self.parts()?;
        let mut blob = |sha256: &str| {
            let bytes =
                read(sha256).filter(|bytes| crate::support::digest::sha256(bytes) == sha256);
            let text = bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
            text.ok_or_else(|| RowError::Blob(sha256.to_owned()))
        };
        let mut event = match parts.remove(WHOLE) {
            Some(sha256) => blob(&sha256)?,
            None => self.body.clone(),
        };
        if !event.starts_with("{\"") || !event.ends_with('}') {
            return Err(RowError::Malformed("its body is not an object".to_owned()));
        }
        for (field, sha256) in parts {
            event.pop();
            let field = serde_json::to_string(&field).map_err(|error| malformed(&error))?;
            event.push_str(&format!(",{field}:{}}}", blob(&sha256)?));
        }
        if is_too_deep(&event) { Err(RowError::TooDeep) } else { Ok(event) }
    }
}

fn malformed(error: &serde_json::Error) -> RowError {
    RowError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use conclave_core::protocol::event::RULES;
    use conclave_core::room::Room;
    use conclave_core::setup::PluginSetup;
    use conclave_core::types::ids::Millis;

    use super::*;

    #[test]
    fn a_record_that_could_not_be_read_again_is_no_row() {
        let nested = |levels: usize| {
            (0..levels).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]))
        };
        let setup = |levels: usize| {
            let mut setup = Setup::clone(Room::new().setup());
            let plugin = PluginSetup { config: nested(levels), ..crate::imports::testing::setup() };
            setup.plugins.insert("p".into(), Arc::new(plugin));
            Arc::new(setup)
        };
        let opening = |levels: usize, text: &str| {
            let content = Some(text.to_owned());
            RunOpening { content, inputs: nested(levels), ..RunOpening::default() }
        };
        let secret = RoomSecret::WITHHELD;
        let long = "x".repeat(LARGE);
        // The limit minus the levels of the event, its field and the place in the setup.
        for (event, most) in [
            (
                &(|levels| Event::RunStarted { setup: None, opening: opening(levels, "") })
                    as &dyn Fn(usize) -> Event,
                JSON_DEPTH_MAX - 2,
            ),
            (
                &|levels| Event::RunStarted { setup: None, opening: opening(levels, &long) },
                JSON_DEPTH_MAX - 2,
            ),
            (
                &|levels| Event::RunStarted { setup: Some(setup(levels)), opening: opening(0, "") },
                JSON_DEPTH_MAX - 4,
            ),
            (
                &|levels| Event::RoomOpened {
                    setup: setup(levels),
                    opening: opening(0, ""),
                    secret: secret.clone(),
                },
                JSON_DEPTH_MAX - 4,
            ),
        ] {
            let rows = Rows::default();
            let record = |levels| Record {
                seq: 3,
                at: Millis(1),
                principal: Principal("ada".into()),
                rules: RULES,
                epoch: 0,
                event: event(levels),
            };
            let (row, parts) = rows.of(&record(most)).unwrap();
            let read = |sha256: &str| {
                parts.iter().find(|part| part.sha256 == sha256).map(|part| Arc::clone(&part.bytes))
            };
            assert!(row.record(read).is_ok(), "as deep as a record may be is read");
            let refused = rows.of(&record(most + 1)).map(|(row, _)| row).unwrap_err();
            assert!(matches!(refused, NoRow::TooDeep(RecordTooDeep { seq: 3 })), "{refused}");
        }
    }

    #[test]
    fn a_row_that_is_nested_too_deep_is_refused_before_a_tree_is_built() {
        let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let body = |levels: usize| {
            format!("{{\"event\":\"agent-stepped\",\"call\":0,\"answer\":{}}}", nested(levels))
        };
        let row = |body: String| EventRow {
            seq: 4,
            at: 1,
            principal: "ada".into(),
            rules: RULES,
            epoch: 0,
            body,
            parts: None,
        };
        for levels in [JSON_DEPTH_MAX, 100_000] {
            assert!(
                matches!(row(body(levels)).record(|_| None), Err(RowError::TooDeep)),
                "{levels}"
            );
            assert!(matches!(row(body(levels)).line(|_| None), Err(RowError::TooDeep)), "{levels}");
        }
        // Names of before are not read as absent fields.
        let old = EventRow { rules: READABLE_RULES - 1, ..row(body(1)) };
        assert!(matches!(old.record(|_| None), Err(RowError::OtherRules { rules: 9 })));
        // A row within the limit is parsed, and fails only because it is no event.
        assert!(matches!(
            row(body(JSON_DEPTH_MAX - 1)).record(|_| None),
            Err(RowError::Malformed(_))
        ));
    }
}
