//! Laws of attachments: bytes that records refer to by their digest.

use std::sync::Arc;

use conclave_runtime::blobs::Blobs;

use crate::rooms::OpenRoom;
use crate::{LawFailure, LawResult, TestedHost, TestedStore, change, ensure, ensure_equal, open};

fn blobs_of(host: &dyn TestedHost) -> LawResult<Arc<dyn Blobs>> {
    host.blobs().ok_or(LawFailure::NotTried("it has no attachments"))
}

/// Bytes are read by their digest, which does not depend on how often they were stored.
pub fn bytes_are_read_by_their_digest_and_stored_once(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let blobs = blobs_of(&*host)?;
    let store_bytes = |bytes: &[u8]| blobs.keep(bytes, "text/plain", Some("a.txt"));
    let (first, again, other) = (store_bytes(b"one")?, store_bytes(b"one")?, store_bytes(b"two")?);
    ensure_equal("the second reference", &again, &first)?;
    let mut room = OpenRoom::with_records(&*host, "a", 1)?;
    room.append_with(&[first.clone(), other.clone()])?;
    for (blob, bytes) in [(&first, b"one"), (&other, b"two")] {
        let read = blobs.read(&blob.sha256)?;
        ensure_equal("the bytes", &read.as_deref(), &Some(&bytes[..]))?;
    }
    let missing = blobs.read(&"0".repeat(64))?;
    ensure(missing.is_none(), || "bytes that were never stored were read".to_owned())
}

/// Once a record is acknowledged, the attachments that it refers to survive a crash.
pub fn bytes_are_stored_before_the_record_that_refers_to_them(
    store: &dyn TestedStore,
) -> LawResult {
    let host = open(store)?;
    let mut room = OpenRoom::with_records(&*host, "a", 1)?;
    let mut stored = Vec::new();
    for number in 0..10 {
        let bytes = format!("picture {number}").repeat(1_000).into_bytes();
        let blob = blobs_of(&*host)?.keep(&bytes, "image/png", None)?;
        room.append_with(std::slice::from_ref(&blob))?;
        stored.push((blob, bytes));
    }
    store.crash(host);
    let host = open(store)?;
    for (blob, bytes) in stored {
        let read = blobs_of(&*host)?.read(&blob.sha256)?;
        let is_read = read.as_deref() == Some(&bytes[..]);
        ensure(is_read, || format!("the attachment {} was lost", blob.sha256))?;
    }
    drop(room);
    Ok(())
}

/// Bytes are checked when they are read: those of another digest are not returned.
pub fn bytes_that_changed_are_not_returned(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let blob = blobs_of(&*host)?.keep(b"one", "text/plain", None)?;
    let mut room = OpenRoom::with_records(&*host, "a", 1)?;
    room.append_with(std::slice::from_ref(&blob))?;
    drop((room, host));
    let other = "1".repeat(64);
    change(
        store,
        &format!("UPDATE blobs SET sha256 = '{other}' WHERE sha256 = '{}'", blob.sha256),
    )?;
    let read = blobs_of(&*open(store)?)?.read(&other)?;
    ensure(read.is_none(), || "bytes of another digest were returned".to_owned())
}
