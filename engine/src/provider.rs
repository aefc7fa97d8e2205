//! The cryptography behind TLS: which library a lane uses, and the lane's own random bytes.
//!
//! A handshake in steady state should write no cache line that another lane writes. Graviola keeps
//! that rule. AWS-LC breaks it with two process-wide locks in every random call, and is used only
//! for signatures by RSA keys, which are worth the exception. The figures are in
//! `engine/PROVIDERS.md`. No other module names a cryptographic library for TLS.

use std::io;

use rustls::NamedGroup;
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, SupportedKxGroup, aws_lc_rs};
use thiserror::Error;

use crate::policy::{Group, Policy};

mod cpu;
mod expanded;
mod key_exchange;
mod last_word;
mod messages;
mod protection;
pub mod random;
mod signing;
mod suites;
#[cfg(test)]
mod tests;
mod verification;

pub use expanded::EXPANDED_BYTES_MAX;
pub(crate) use last_word::with_last_word;
pub(crate) use protection::{CONTENT_TYPE_LEN, TAG_LEN, Tls13Direction, tls13_header};

/// The library that an operator may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProviderChoice {
    /// Graviola if the processor has the features that it needs, otherwise AWS-LC.
    #[default]
    Auto,
    /// AWS-LC on every processor.
    AwsLc,
    /// Graviola, or an error on a processor that lacks a feature it needs.
    Graviola,
}

/// The cryptography of one lane.
pub struct Provider {
    /// The library, as written in logs and metrics.
    pub name: &'static str,
    /// The interface for rustls. Its random bytes come from [`random`].
    pub crypto: CryptoProvider,
}

/// Key exchanges that were tested on a lane: of each library and group, one is enough.
#[derive(Debug, Default)]
pub struct SelfTests {
    done: Vec<(&'static str, NamedGroup)>,
}

impl SelfTests {
    /// The count of key exchanges.
    pub fn exchanges(&self) -> usize {
        self.done.len()
    }
}

impl Provider {
    /// Pays for first uses before a client waits for them: call it on the lane's thread before the
    /// lane accepts.
    ///
    /// Seeds the thread's random generator and makes AWS-LC gather its entropy, because AWS-LC
    /// signs RSA in every choice. That takes 30 ms for the first thread of a process. Then it does
    /// one key exchange in each group that is not in `tests`. The two ends of each are compared, so
    /// that a broken library is found here and not by a client.
    pub fn warm_up(&self, tests: &mut SelfTests) -> Result<(), ProviderError> {
        random::fill(&mut [0; 1])?;
        aws_lc_rs::default_provider()
            .secure_random
            .fill(&mut [0; 1])
            .map_err(|_| ProviderError::AwsLcRandom)?;
        for group in &self.crypto.kx_groups {
            let test = (self.name, group.name());
            if !tests.done.contains(&test) {
                exchange_with_itself(*group)?;
                tests.done.push(test);
            }
        }
        Ok(())
    }
}

/// Builds the cryptography of one lane for one policy: its groups, and its suites in its order.
pub(crate) fn policy_provider(
    choice: ProviderChoice,
    policy: &Policy,
) -> Result<Provider, ProviderError> {
    let mut provider = lane_provider(choice, &policy.groups)?;
    if !policy.suites.is_empty() {
        let order: Vec<_> = policy.suites.iter().map(|suite| suite.id()).collect();
        suites::keep(&mut provider.crypto.cipher_suites, &order);
    }
    Ok(provider)
}

/// Builds the cryptography of one lane, with these key exchange groups.
///
/// Suites are ordered AES-128-GCM, AES-256-GCM, ChaCha20-Poly1305 for TLS 1.3 and then the same
/// for TLS 1.2 with ephemeral keys only.
pub fn lane_provider(choice: ProviderChoice, groups: &[Group]) -> Result<Provider, ProviderError> {
    if groups.is_empty() {
        return Err(ProviderError::NoGroups);
    }
    match library(choice, &cpu::missing_for_graviola())? {
        Library::AwsLc => Ok(aws_lc(groups)),
        Library::Graviola => Ok(graviola(groups)),
    }
}

/// The library for `choice` on a processor that lacks the features `missing`.
fn library(choice: ProviderChoice, missing: &[&str]) -> Result<Library, ProviderError> {
    match choice {
        ProviderChoice::Auto | ProviderChoice::Graviola if missing.is_empty() => {
            Ok(Library::Graviola)
        }
        ProviderChoice::Auto | ProviderChoice::AwsLc => Ok(Library::AwsLc),
        ProviderChoice::Graviola => Err(ProviderError::CpuLacks { features: missing.join(", ") }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Library {
    AwsLc,
    Graviola,
}

/// A reason why a lane has no cryptography.
#[derive(Debug, Error)]
pub enum ProviderError {
    /// AWS-LC could not gather random bytes.
    #[error("AWS-LC gathered no random bytes; check that the kernel's random generator works")]
    AwsLcRandom,
    /// Graviola was asked for by name on a processor it cannot run on.
    #[error(
        "the provider graviola needs processor features that this machine lacks: {features}; \
         choose the provider `auto` or `aws-lc`"
    )]
    CpuLacks {
        /// The missing features, separated by commas.
        features: String,
    },
    /// A policy without groups: no client could agree on a key.
    #[error("no key exchange group is configured; name at least one, for example X25519")]
    NoGroups,
    /// The kernel's generator in the process gave no random bytes.
    #[error("the kernel gave no random bytes: {0}")]
    Kernel(#[source] io::Error),
    /// The kernel gave no memory for a lane's generator.
    #[error("the kernel gave no memory for a lane's random generator: {0}")]
    Memory(#[source] io::Error),
    /// The kernel gave no random bytes to seed a generator.
    #[error("the kernel gave no random bytes to seed a lane's generator: {0}")]
    Random(#[from] getrandom::Error),
    /// A key exchange with itself failed or ended in two different secrets.
    #[error(
        "self-test: the key exchange {group:?} failed on this machine ({reason}); \
         choose the other provider and report this as a fault of Sealane"
    )]
    SelfTest {
        /// The group that failed.
        group: NamedGroup,
        /// The library's error.
        reason: String,
    },
    /// The lane's thread is ending and its generator is gone.
    #[error("a lane's random generator was used while its thread ends: a fault of Sealane")]
    ThreadEnds,
}

fn aws_lc(groups: &[Group]) -> Provider {
    let crypto = CryptoProvider {
        cipher_suites: suites::aws_lc(),
        kx_groups: groups.iter().map(|group| aws_lc_group(*group)).collect(),
        secure_random: &LaneRandom,
        ..aws_lc_rs::default_provider()
    };
    Provider { name: "aws-lc-rs", crypto }
}

fn aws_lc_group(group: Group) -> &'static dyn SupportedKxGroup {
    match group {
        Group::Secp256r1 => aws_lc_rs::kx_group::SECP256R1,
        Group::Secp384r1 => aws_lc_rs::kx_group::SECP384R1,
        Group::X25519 => aws_lc_rs::kx_group::X25519,
        Group::X25519MlKem768 => aws_lc_rs::kx_group::X25519MLKEM768,
    }
}

fn graviola(groups: &[Group]) -> Provider {
    let crypto = CryptoProvider {
        cipher_suites: suites::mixed(),
        kx_groups: groups.iter().map(|group| key_exchange::of_group(*group)).collect(),
        secure_random: &LaneRandom,
        key_provider: &signing::Keys,
        signature_verification_algorithms: verification::mixed(),
    };
    Provider { name: "graviola", crypto }
}

fn exchange_with_itself(group: &dyn SupportedKxGroup) -> Result<(), ProviderError> {
    let failed = |reason: String| ProviderError::SelfTest { group: group.name(), reason };
    let client = group.start().map_err(|error| failed(error.to_string()))?;
    let server =
        group.start_and_complete(client.pub_key()).map_err(|error| failed(error.to_string()))?;
    let secret = client.complete(&server.pub_key).map_err(|error| failed(error.to_string()))?;
    if secret.secret_bytes() != server.secret.secret_bytes() {
        return Err(failed("its two ends got different secrets".to_owned()));
    }
    Ok(())
}

/// rustls's way to the generator of the thread it runs on.
#[derive(Debug)]
struct LaneRandom;

impl SecureRandom for LaneRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        random::fill(bytes).map_err(|_| GetRandomFailed)
    }
}
