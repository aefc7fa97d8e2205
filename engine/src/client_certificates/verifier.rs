//! Verification of a client's certificate by a lane.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fragile::Fragile;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DistinguishedName, Error};

use super::roots::Lists;
use super::{ClientRoots, ClientStanding, Distrust};
use crate::handshake_signatures::check_handshake_signatures;
use crate::peer_chain::{PEER_CHAIN_BYTES_MAX, PeerChain};

/// A lane's own verifier. The roots behind it are memory that all lanes read and none writes.
#[derive(Debug)]
pub(crate) struct LaneVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// Clients that were let in by a list that had ended, counted by the lane.
    by_ended_lists: Fragile<Rc<Cell<u64>>>,
    /// The certificate that was refused last, until somebody takes it.
    refused: Fragile<RefCell<Option<Box<[u8]>>>>,
    required: bool,
    roots: ClientRoots,
}

impl LaneVerifier {
    /// A verifier against `roots`; if a certificate is not `required`, handshakes let any pass.
    pub(crate) fn new(
        roots: &ClientRoots,
        required: bool,
        provider: &CryptoProvider,
        by_ended_lists: &Rc<Cell<u64>>,
    ) -> Self {
        Self {
            algorithms: provider.signature_verification_algorithms,
            by_ended_lists: Fragile::new(Rc::clone(by_ended_lists)),
            refused: Fragile::new(RefCell::new(None)),
            required,
            roots: roots.clone(),
        }
    }

    /// Whether handshakes fail without a chain that the roots vouch for.
    pub(super) fn requires(&self) -> bool {
        self.required
    }

    /// The trusted roots, with the other rules.
    pub(crate) fn roots(&self) -> &ClientRoots {
        &self.roots
    }

    /// The verdict on a chain at a time.
    pub(crate) fn standing(
        &self,
        chain: &[CertificateDer<'_>],
        now: Option<UnixTime>,
    ) -> ClientStanding {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return ClientStanding::Absent;
        };
        match self.judge(leaf, intermediates, now) {
            Ok(_) => ClientStanding::Verified,
            Err(error) => ClientStanding::Unverified(Distrust::of(error, chain)),
        }
    }

    /// Verifies a chain and returns the error if it is rejected. Counts a chain that is verified by
    /// a list that has ended.
    pub(super) fn admit(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: Option<UnixTime>,
    ) -> Result<(), Error> {
        let lists = self.judge(leaf, intermediates, now)?;
        if lists == Lists::Ended
            && let Ok(count) = self.by_ended_lists.try_get()
        {
            count.set(count.get() + 1);
        }
        Ok(())
    }

    /// A client's own certificate, if it was refused since this was asked last.
    pub(crate) fn take_refused(&self) -> Option<Box<[u8]>> {
        self.refused.try_get().ok()?.take()
    }

    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: Option<UnixTime>,
    ) -> Result<Lists, Error> {
        let now = now.ok_or(Error::FailedToGetCurrentTime)?;
        self.roots.judge(leaf, intermediates, now, &self.algorithms)
    }

    fn keep_refused(&self, leaf: &CertificateDer<'_>) {
        if leaf.len() <= PEER_CHAIN_BYTES_MAX
            && let Ok(refused) = self.refused.try_get()
        {
            refused.replace(Some(leaf.as_ref().into()));
        }
    }
}

impl ClientCertVerifier for LaneVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.roots.subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let admitted = match self.required {
            true => self.admit(end_entity, intermediates, Some(now)),
            // The chain can be read at least, so a later reader of it, in any language, meets no
            // surprise.
            false => PeerChain::parse(end_entity, intermediates).map(drop).map_err(Error::from),
        };
        if admitted.is_err() {
            self.keep_refused(end_entity);
        }
        admitted.map(|()| ClientCertVerified::assertion())
    }

    check_handshake_signatures!();
}
