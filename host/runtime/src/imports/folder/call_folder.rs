//! A granted folder as one call sees it: the folder itself, or the run's overlay of it.

use std::sync::Arc;

use cap_std::fs::File;

use super::listing::{Page, PageRequest};
use super::overlay::{OverlayView, RunOverlays};
use super::{
    FileChange, FolderAccess, FolderEntry, FolderFailure, GrantedFolder, Listing, OverlayGrant,
};

/// A granted folder during a call.
#[derive(Clone)]
pub(crate) struct CallFolder {
    folder: Arc<GrantedFolder>,
    overlays: Option<Arc<RunOverlays>>,
}

impl CallFolder {
    /// The folder, or what these overlays of the run make of it.
    pub(crate) fn new(folder: &Arc<GrantedFolder>, overlays: Option<&Arc<RunOverlays>>) -> Self {
        Self { folder: Arc::clone(folder), overlays: overlays.cloned() }
    }

    pub(crate) fn open_file(&self, rest: &str) -> Result<File, FolderFailure> {
        self.layered(|folder| folder.open_file(rest), |view| view.open_file(rest))
    }

    pub(crate) fn look(&self, rest: &str) -> Result<FolderEntry, FolderFailure> {
        self.layered(|folder| folder.look(rest), |view| view.look(rest))
    }

    pub(crate) fn page(
        &self,
        request: PageRequest<'_>,
        listing: Option<Listing>,
    ) -> Result<Page, FolderFailure> {
        // Only one of the two takes it.
        let listing = std::cell::Cell::new(listing);
        self.layered(
            |folder| folder.page(request, listing.take()),
            |view| view.page(request, listing.take()),
        )
    }

    pub(crate) fn write(&self, change: FileChange<'_>) -> Result<u64, FolderFailure> {
        self.layered(|folder| folder.write(change), |view| view.write(change))
    }

    pub(crate) fn remove(&self, rest: &str, durable: bool) -> Result<(), FolderFailure> {
        self.layered(|folder| folder.remove(rest, durable), |view| view.remove(rest, durable))
    }

    pub(crate) fn sync(&self, rest: &str) -> Result<(), FolderFailure> {
        self.layered(|folder| folder.sync(rest), |view| view.sync(rest))
    }

    /// Works on the folder, or on the run's overlay of it.
    fn layered<T>(
        &self,
        direct: impl FnOnce(&GrantedFolder) -> Result<T, FolderFailure>,
        overlaid: impl FnOnce(&OverlayView<'_>) -> Result<T, FolderFailure>,
    ) -> Result<T, FolderFailure> {
        match &self.folder.access {
            FolderAccess::Overlay(grant) => self.view(grant, overlaid),
            _ => direct(&self.folder),
        }
    }

    fn view<T>(
        &self,
        grant: &OverlayGrant,
        work: impl FnOnce(&OverlayView<'_>) -> Result<T, FolderFailure>,
    ) -> Result<T, FolderFailure> {
        let overlays = self.overlays.as_ref().ok_or(FolderFailure::NotStored)?;
        let overlay = overlays.open(&grant.origin)?;
        work(&OverlayView::new(overlays, &overlay, &self.folder, grant.most))
    }
}
