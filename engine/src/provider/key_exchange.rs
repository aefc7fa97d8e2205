//! Graviola's key exchange with private keys from the lane's own random bytes.
//!
//! Graviola draws its private keys from the kernel, one system call each. Its static private keys
//! take given bytes; used once and dropped (which erases them) they are ephemeral keys.

use std::marker::PhantomData;

use graviola::key_agreement::{mlkem768, p256, p384, x25519};
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use zeroize::Zeroizing;

use super::random;
use crate::policy::Group;

/// The exchange for `group`.
pub(super) fn of_group(group: Group) -> &'static dyn SupportedKxGroup {
    match group {
        Group::Secp256r1 => &DiffieHellman::<P256>(PhantomData),
        Group::Secp384r1 => &DiffieHellman::<P384>(PhantomData),
        Group::X25519 => &DiffieHellman::<X25519>(PhantomData),
        Group::X25519MlKem768 => &Hybrid,
    }
}

/// Elliptic curve Diffie-Hellman on one curve.
struct DiffieHellman<C>(PhantomData<C>);

impl<C: Curve> SupportedKxGroup for DiffieHellman<C> {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let private = C::ephemeral()?;
        let share = C::share(&private);
        Ok(Box::new(Started::<C> { private, share }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let private = C::ephemeral()?;
        Ok(CompletedKeyExchange {
            group: C::NAME,
            pub_key: C::share(&private).as_ref().to_vec(),
            secret: C::agree(&private, client_share)?,
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        C::NAME
    }
}

impl<C: Curve> std::fmt::Debug for DiffieHellman<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", C::NAME)
    }
}

/// A client's half of an exchange, until the server's share arrives.
struct Started<C: Curve> {
    private: C::Private,
    share: C::Share,
}

impl<C: Curve> ActiveKeyExchange for Started<C> {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        C::agree(&self.private, server_share)
    }

    fn pub_key(&self) -> &[u8] {
        self.share.as_ref()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        C::NAME
    }
}

/// What differs from curve to curve.
trait Curve: Send + Sync + 'static {
    type Private: Send + Sync;
    type Share: AsRef<[u8]> + Send + Sync;
    const NAME: NamedGroup;

    /// A private key that was never used, from the lane's random bytes.
    fn ephemeral() -> Result<Self::Private, Error>;
    /// What the peer gets.
    fn share(private: &Self::Private) -> Self::Share;
    /// The secret, or an error if the peer's share is malformed, off the curve or of small order.
    fn agree(private: &Self::Private, peer_share: &[u8]) -> Result<SharedSecret, Error>;
}

struct X25519;

impl Curve for X25519 {
    type Private = x25519::StaticPrivateKey;
    type Share = [u8; 32];
    const NAME: NamedGroup = NamedGroup::X25519;

    fn ephemeral() -> Result<Self::Private, Error> {
        Ok(x25519::StaticPrivateKey::from_array(&*random_bytes::<32>()?))
    }

    fn share(private: &Self::Private) -> Self::Share {
        private.public_key().as_bytes()
    }

    fn agree(private: &Self::Private, peer_share: &[u8]) -> Result<SharedSecret, Error> {
        // An all-zero secret is an error here: RFC 8446 section 7.4.2.
        let secret = x25519::PublicKey::try_from_slice(peer_share)
            .and_then(|peer| private.diffie_hellman(&peer))
            .map_err(|_| INVALID_SHARE)?;
        Ok(SharedSecret::from(&secret.0[..]))
    }
}

struct P256;

impl Curve for P256 {
    type Private = p256::StaticPrivateKey;
    type Share = [u8; 65];
    const NAME: NamedGroup = NamedGroup::secp256r1;

    fn ephemeral() -> Result<Self::Private, Error> {
        below_order::<32, _, _>(p256::StaticPrivateKey::from_bytes)
    }

    fn share(private: &Self::Private) -> Self::Share {
        private.public_key_uncompressed()
    }

    fn agree(private: &Self::Private, peer_share: &[u8]) -> Result<SharedSecret, Error> {
        let secret = p256::PublicKey::from_x962_uncompressed(peer_share)
            .and_then(|peer| private.diffie_hellman(&peer))
            .map_err(|_| INVALID_SHARE)?;
        Ok(SharedSecret::from(&secret.0[..]))
    }
}

struct P384;

impl Curve for P384 {
    type Private = p384::StaticPrivateKey;
    type Share = [u8; 97];
    const NAME: NamedGroup = NamedGroup::secp384r1;

    fn ephemeral() -> Result<Self::Private, Error> {
        below_order::<48, _, _>(p384::StaticPrivateKey::from_bytes)
    }

    fn share(private: &Self::Private) -> Self::Share {
        private.public_key_uncompressed()
    }

    fn agree(private: &Self::Private, peer_share: &[u8]) -> Result<SharedSecret, Error> {
        let secret = p384::PublicKey::from_x962_uncompressed(peer_share)
            .and_then(|peer| private.diffie_hellman(&peer))
            .map_err(|_| INVALID_SHARE)?;
        Ok(SharedSecret::from(&secret.0[..]))
    }
}

/// A private key from the first draw that lies between zero and the group's order.
///
/// P-256 refuses one draw in 2^32, P-384 one in 2^190.
fn below_order<const BYTES: usize, K, E>(
    decode: impl Fn(&[u8]) -> Result<K, E>,
) -> Result<K, Error> {
    for _ in 0..MAX_DRAWS {
        if let Ok(private) = decode(&*random_bytes::<BYTES>()?) {
            return Ok(private);
        }
    }
    Err(GetRandomFailed.into())
}

/// X25519MLKEM768: the ML-KEM part first, in shares and in the secret (draft-ietf-tls-ecdhe-mlkem).
///
/// ML-KEM's own draw stays with the kernel: graviola's public interface takes no bytes for it.
#[derive(Debug)]
struct Hybrid;

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        // Only a client starts, and Sealane is one only towards a backend, on kept connections.
        rustls_graviola::kx::X25519MLKEM768.start()
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (encapsulation_key, x25519_share) =
            client_share.split_first_chunk::<ENCAPSULATION_KEY_BYTES>().ok_or(INVALID_SHARE)?;
        let x25519 = DiffieHellman::<X25519>(PhantomData).start_and_complete(x25519_share)?;
        let (ml_kem_secret, ciphertext) = mlkem768::EncapKey::from_bytes(encapsulation_key)
            .map_err(|_| INVALID_SHARE)?
            .encaps()
            .map_err(|_| GetRandomFailed)?;
        let secret = [ml_kem_secret.as_ref(), x25519.secret.secret_bytes()].concat();
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [ciphertext.as_ref().as_slice(), &x25519.pub_key].concat(),
            secret: SharedSecret::from(secret),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

fn random_bytes<const BYTES: usize>() -> Result<Zeroizing<[u8; BYTES]>, Error> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    random::fill(&mut *bytes).map_err(|_| GetRandomFailed)?;
    Ok(bytes)
}

const INVALID_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// More refused draws than this mean a broken generator, not bad luck.
const MAX_DRAWS: usize = 16;

const ENCAPSULATION_KEY_BYTES: usize = 1184;
