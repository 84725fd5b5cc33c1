//! Attachments in memory. Their digests are made up: the same bytes have the same one.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::fake;
use crate::Blob;
use crate::blobs::BlobError;

pub(crate) fn read(sha256: &str, offset: u64, length: u32) -> Result<Vec<u8>, BlobError> {
    fake(|fake| {
        let bytes = fake.blobs.get(sha256).ok_or(BlobError::Unknown)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(bytes.iter().skip(start).take(length as usize).copied().collect())
    })
}

pub(crate) fn put(bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError> {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let sha256 = format!("{:064x}", hasher.finish());
    fake(|fake| drop(fake.blobs.insert(sha256.clone(), bytes.to_vec())));
    Ok(Blob {
        sha256,
        media_type: media_type.to_owned(),
        length: bytes.len() as u64,
        name: name.map(str::to_owned),
    })
}
