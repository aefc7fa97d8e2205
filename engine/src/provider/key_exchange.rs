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

/// The operations that differ from curve to curve.
trait Curve: Send + Sync + 'static {
    type Private: Send + Sync;
    type Share: AsRef<[u8]> + Send + Sync;
    const NAME: NamedGroup;

    /// A private key that was never used, from the lane's random bytes.
    fn ephemeral() -> Result<Self::Private, Error>;
    /// The share for the peer.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_share_is_an_error_on_both_sides() {
        let small_order: &[u8] = &[0; 32];
        let off_curve = |length: usize| [&[4], vec![1; length - 1].as_slice()].concat();
        for (group, bad) in [
            (Group::X25519, small_order),
            (Group::X25519, &[9; 31]),
            (Group::X25519, &[9; 33]),
            (Group::Secp256r1, &off_curve(65)),
            (Group::Secp256r1, &[0; 65]),
            (Group::Secp256r1, &[]),
            (Group::Secp384r1, &off_curve(97)),
            (Group::Secp384r1, &[4; 65]),
            (Group::X25519MlKem768, &[9; ENCAPSULATION_KEY_BYTES]),
            (Group::X25519MlKem768, &[0; ENCAPSULATION_KEY_BYTES + 32]),
            // ML-KEM coefficients above its modulus (FIPS 203 section 7.2).
            (Group::X25519MlKem768, &[0xff; ENCAPSULATION_KEY_BYTES + 32]),
        ] {
            let group = of_group(group);
            let length = bad.len();
            assert!(group.start_and_complete(bad).is_err(), "{group:?} server, {length} bytes");
            let client = group.start().unwrap();
            assert!(client.complete(bad).is_err(), "{group:?} client, {length} bytes");
        }
    }

    #[test]
    fn a_private_key_out_of_range_is_drawn_again() {
        let draws = std::cell::Cell::new(0);
        let third_time = |bytes: &[u8]| {
            draws.set(draws.get() + 1);
            if draws.get() < 3 { Err(()) } else { Ok(bytes.to_vec()) }
        };
        assert_ne!(below_order::<32, _, _>(third_time).unwrap(), [0; 32]);
        assert!(below_order::<32, (), ()>(|_| Err(())).is_err());
    }

    #[test]
    fn no_share_is_used_twice() {
        for group in Group::ALL.map(of_group) {
            let client = group.start().unwrap();
            let first = group.start_and_complete(client.pub_key()).unwrap();
            let second = group.start_and_complete(client.pub_key()).unwrap();
            assert_ne!(first.pub_key, second.pub_key, "{group:?}");
            assert_ne!(first.secret.secret_bytes(), second.secret.secret_bytes(), "{group:?}");
        }
    }
}
