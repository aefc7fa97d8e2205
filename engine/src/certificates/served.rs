//! The certificates that a listener serves for a name, from files and from a store.
//!
//! An exact name goes before a wildcard wherever each is; for one and the same name, files go
//! before the store. A certificate that is not in date gives way to any other for the name that
//! is: the exact name's own second certificate, the store's, then the wildcards'.

use std::sync::Arc;

use super::index::Group;
use super::store::{ListenerStore, StoreFailure, StoreView, StoredCertificate};
use super::{AskedName, Certificate, CertificateDigest, CertificateIndex};
use crate::policy::UnknownNames;

/// The certificates of one listener. Cloned by a lane once per generation.
#[derive(Clone, Debug)]
pub struct Served {
    /// Those from files.
    pub index: Arc<CertificateIndex>,
    /// Those from a store.
    pub store: Option<ListenerStore>,
    /// The answer to a client that asks for another name.
    pub unknown_names: UnknownNames,
}

impl Served {
    /// The certificates for a client that asks for `server_name`, or for none. `view` is the
    /// store's.
    pub(super) fn find(
        &self,
        server_name: Option<&str>,
        view: Option<&dyn StoreView>,
    ) -> Result<Found, StoreFailure> {
        self.find_or_default(server_name, view).map(|(found, _)| found)
    }

    /// The same, and whether it is a certificate for that name.
    pub(super) fn find_or_default(
        &self,
        server_name: Option<&str>,
        view: Option<&dyn StoreView>,
    ) -> Result<(Found, bool), StoreFailure> {
        #[cfg(test)]
        LOOKED_UP.set(LOOKED_UP.get() + 1);
        let found = match server_name.and_then(AskedName::new) {
            Some(name) => self.find_named(name, view)?,
            None => Found::Nothing,
        };
        match (found, self.unknown_names) {
            (Found::Nothing, UnknownNames::ServeDefault) => Ok((self.find_default(view)?, false)),
            (Found::Nothing, UnknownNames::Refuse) => Ok((Found::Nothing, false)),
            (found, _) => Ok((found, true)),
        }
    }

    /// Finds a replacement for `found`, which is out of date: the first for which `choose` returns
    /// something.
    pub(super) fn find_instead<T>(
        &self,
        server_name: Option<&str>,
        found: &Found,
        view: Option<&dyn StoreView>,
        mut choose: impl FnMut(&Found) -> Option<T>,
    ) -> Result<Option<T>, StoreFailure> {
        // If the default certificate replaces others, search for the default's own name.
        let default = self.index.default_certificates().first();
        let server_name = match found {
            Found::Indexed(Group::Default) => default.and_then(|each| each.names().first()),
            Found::Indexed(Group::Named(_)) | Found::Nothing | Found::Stored(_) => None,
        }
        .map_or(server_name, |name| Some(name));
        let Some(mut name) = server_name.and_then(AskedName::new) else { return Ok(None) };
        if let Some(chosen) = self.find_same(name.exact(), view, &mut choose)? {
            return Ok(Some(chosen));
        }
        match name.wildcard() {
            Some(wildcard) => self.find_same(wildcard, view, &mut choose),
            None => Ok(None),
        }
    }

    /// The same for exactly `name`.
    fn find_same<T>(
        &self,
        name: &str,
        view: Option<&dyn StoreView>,
        choose: &mut impl FnMut(&Found) -> Option<T>,
    ) -> Result<Option<T>, StoreFailure> {
        for group in [self.index.named(name), self.index.spare(name)].into_iter().flatten() {
            if let Some(chosen) = choose(&Found::Indexed(group)) {
                return Ok(Some(chosen));
            }
        }
        let stored = view.map(|view| view.named(name)).transpose()?.map(Found::stored);
        Ok(stored.as_ref().and_then(choose))
    }

    /// The source of the certificate that a client gets at this moment if it asks for
    /// `server_name`. For people, by the same search that lanes make for a hello. Dates are not
    /// considered.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn look_up(&self, server_name: &str) -> Result<ServedFrom<'_>, StoreFailure> {
        let view = self.view()?;
        Ok(match self.find(Some(server_name), view.as_deref())? {
            Found::Indexed(group) => ServedFrom::Files(self.index.group(&group)),
            Found::Nothing => ServedFrom::Nothing,
            Found::Stored(found) => {
                ServedFrom::Store(found.into_iter().map(|stored| stored.digest).collect())
            }
        })
    }

    /// Whether files alone serve every client, for any name, and no on-demand look-up is
    /// configured.
    pub(super) fn covers_all(&self) -> bool {
        let has_default = !self.index.default_certificates().is_empty();
        self.unknown_names == UnknownNames::ServeDefault && has_default && !self.on_demand()
    }

    /// Whether it is to be found out which names have a certificate.
    pub(super) fn on_demand(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.on_demand)
    }

    /// The store as it is now.
    pub(crate) fn view(&self) -> Result<Option<Box<dyn StoreView + '_>>, StoreFailure> {
        self.store.as_ref().map(|store| store.certificates.view()).transpose()
    }

    fn find_named(
        &self,
        mut name: AskedName,
        view: Option<&dyn StoreView>,
    ) -> Result<Found, StoreFailure> {
        match self.find_exactly(name.exact(), view)? {
            Found::Nothing => match name.wildcard() {
                Some(wildcard) => self.find_exactly(wildcard, view),
                None => Ok(Found::Nothing),
            },
            found => Ok(found),
        }
    }

    fn find_exactly(
        &self,
        name: &str,
        view: Option<&dyn StoreView>,
    ) -> Result<Found, StoreFailure> {
        match (self.index.named(name), view) {
            (Some(group), _) => Ok(Found::Indexed(group)),
            (None, Some(view)) => view.named(name).map(Found::stored),
            (None, None) => Ok(Found::Nothing),
        }
    }

    fn find_default(&self, view: Option<&dyn StoreView>) -> Result<Found, StoreFailure> {
        match (self.index.default_certificates(), &self.store, view) {
            ([], Some(store), Some(view)) => store.default_of(view).map(Found::stored),
            ([], ..) => Ok(Found::Nothing),
            _ => Ok(Found::Indexed(Group::Default)),
        }
    }
}

/// The source of a certificate, one of each kind of key, best first.
#[derive(Clone, Debug)]
pub enum ServedFrom<'s> {
    /// Files.
    Files(&'s [Arc<Certificate>]),
    /// Nothing is served.
    Nothing,
    /// The store.
    Store(Vec<CertificateDigest>),
}

/// Certificates for one name, one of each kind of key, best first.
#[derive(Debug)]
pub(super) enum Found {
    /// From files.
    Indexed(Group),
    /// None.
    Nothing,
    /// From a store.
    Stored(Vec<StoredCertificate>),
}

impl Found {
    fn stored(found: Vec<StoredCertificate>) -> Self {
        if found.is_empty() { Self::Nothing } else { Self::Stored(found) }
    }
}

#[cfg(test)]
thread_local! {
    /// The count of look-ups of names on this thread.
    pub(super) static LOOKED_UP: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
