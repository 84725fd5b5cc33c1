//! What was computed from the records of runs, each until its run has other records: those who look
//! at a run again and again have it computed once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by their subjects. At most so many are kept, those that were looked at last.
pub(crate) struct ViewCache<K, T> {
    most: usize,
    views: Mutex<Views<K, T>>,
}

struct Views<K, T> {
    looks: u64,
    of: BTreeMap<K, View<T>>,
}

struct View<T> {
    /// What the value depends on.
    version: String,
    value: Arc<T>,
    /// The number of the look at it.
    look: u64,
}

impl<K: Ord + Clone, T> ViewCache<K, T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, views: Mutex::new(Views { looks: 0, of: BTreeMap::new() }) }
    }

    /// The value of this version, computed if there is none.
    ///
    /// # Errors
    /// That of `compute`; nothing is remembered then.
    pub(crate) async fn get<F, E>(
        &self,
        subject: &K,
        version: &str,
        compute: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        if let Some(known) = self.known(subject, version) {
            return Ok(known);
        }
        let value = Arc::new(compute().await?);
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.looks += 1;
        let (version, look) = (version.to_owned(), views.looks);
        views.of.insert(subject.clone(), View { version, value: Arc::clone(&value), look });
        if views.of.len() > self.most {
            let oldest = views.of.iter().min_by_key(|(_, view)| view.look);
            let oldest = oldest.map(|(subject, _)| subject.clone());
            oldest.map(|oldest| views.of.remove(&oldest));
        }
        Ok(value)
    }

    fn known(&self, subject: &K, version: &str) -> Option<Arc<T>> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.looks += 1;
        let look = views.looks;
        let view = views.of.get_mut(subject).filter(|view| view.version == version)?;
        view.look = look;
        Some(Arc::clone(&view.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_view_is_computed_again_when_its_run_has_other_records() {
        let cache = ViewCache::new(2);
        let get = async |run: &str, version: u64, value: u64| {
            let compute = || std::future::ready(Ok::<_, ()>(value));
            *cache.get(&run.to_owned(), &version.to_string(), compute).await.unwrap()
        };
        assert_eq!(get("a", 1, 7).await, 7);
        assert_eq!(get("a", 1, 8).await, 7, "it is known");
        assert_eq!(get("a", 2, 9).await, 9);
        assert_eq!(get("b", 1, 1).await, 1);
        assert_eq!(get("a", 2, 0).await, 9);
        assert_eq!(get("c", 1, 1).await, 1, "in the place of the one looked at longest ago");
        assert_eq!((get("a", 2, 0).await, get("b", 1, 5).await), (9, 5));
        let other = "d".to_owned();
        let failed = cache.get(&other, "1", || std::future::ready(Err::<u64, _>(3)));
        assert_eq!(failed.await, Err(3));
    }
}
