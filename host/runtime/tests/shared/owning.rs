//! Ownership, as several processes see it.

use conclave_runtime::ResumeError;
use conclave_runtime::store::{Durability, RunOrigin, Store};

use crate::support::{Shared, echo};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_progress_elsewhere_is_not_resumed_and_its_host_is_named() {
    let Some(shared) = Shared::new() else { return };
    let (one, two) = (shared.host(echo()).await, shared.host(echo()).await);
    let run = one.enqueue("hello").await;
    let open = one.prepared.reopen(&run, one.options()).await.unwrap();
    let refused = two.prepared.reopen(&run, two.options()).await.err().unwrap();
    let ResumeError::Journal(failure) = &refused else { panic!("{refused}") };
    assert_eq!(failure.cause.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("test-"), "{refused}");
    // A host that let go of it, or ended, gives it free at once.
    drop(open);
    shared
        .until("it is free", |_| {
            two.store.claim(&two.prepared.pool()).unwrap().as_ref() == Some(&run)
        })
        .await;
    let mut session = two.prepared.reopen(&run, two.options()).await.unwrap();
    session.resume().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_listed_while_they_live() {
    let Some(shared) = Shared::new() else { return };
    let one = shared.host(echo()).await;
    let hosts = shared.reader().hosts().unwrap();
    assert!(hosts.len() == 1 && hosts[0].is_live && hosts[0].capacity == 0, "{hosts:?}");
    shared.end_leases();
    assert_eq!(shared.reader().hosts().unwrap(), [], "it has no run that others wait for");
    drop(one);
    assert_eq!(shared.reader().hosts().unwrap(), []);
    assert!(!shared.reader().is_in_use().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_a_folder_has_no_hosts_and_nothing_to_claim() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    drop(store.journals(Durability::Group, RunOrigin::default()));
    assert_eq!(store.claim("pool").unwrap(), None);
    let reader = conclave_runtime::store::StoreReader::open(temp.path()).unwrap();
    assert_eq!(reader.hosts().unwrap(), []);
    assert!(reader.is_in_use().unwrap());
}
