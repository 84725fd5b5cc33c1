//! Polls the files to which clients have subscribed: folders on file servers report no changes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Resources, real_path};

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The size and modification time of a file; `None` if it is not served now.
type FileState = Option<(u64, Option<SystemTime>)>;

/// The files of one subscription, as they were looked at last.
pub(in crate::serve) struct Watch {
    files: Vec<(String, FileState)>,
}

impl Watch {
    /// Watches the files at these addresses. The journals and objects of runs are not watched.
    pub(in crate::serve) async fn new(resources: &Resources, addresses: &[String]) -> Self {
        let mut files = Vec::new();
        for address in addresses {
            files.push((address.clone(), state(resources, address).await));
        }
        Self { files }
    }

    /// Waits until files have changed, and returns their addresses.
    pub(in crate::serve) async fn changed(&mut self, resources: &Resources) -> Vec<String> {
        loop {
            tokio::time::sleep(PAUSE).await;
            let mut changed = Vec::new();
            for (address, last) in &mut self.files {
                let now = state(resources, address).await;
                if now != *last {
                    *last = now;
                    changed.push(address.clone());
                }
            }
            if !changed.is_empty() {
                return changed;
            }
        }
    }
}

async fn state(resources: &Resources, address: &str) -> FileState {
    let path = resources.file(address)?;
    tokio::task::spawn_blocking(move || look(&path)).await.ok().flatten()
}

fn look(path: &Path) -> FileState {
    let metadata = real_path(path)?.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()))
}
