//! Assignment of certificates to the machines of a fleet.

use crate::CertificateId;

/// A machine of a fleet, by a number that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u64);

/// The machine, of those that are alive, that has the certificate in its schedule: the one with the
/// highest weight for it (rendezvous hashing). All machines with the same list come to the same
/// answer, and a machine that comes or goes moves only its own share.
///
/// It keeps a thousand machines from asking for the same lease. The lease, and not this function,
/// ensures that one name is ordered once, also while machines have different lists.
pub fn keeper(
    certificate: CertificateId,
    machines: impl IntoIterator<Item = MachineId>,
) -> Option<MachineId> {
    machines.into_iter().max_by_key(|machine| (weight(certificate, *machine), *machine))
}

/// A number that is the same everywhere and looks drawn (the finish of SplitMix64).
fn weight(CertificateId(certificate): CertificateId, MachineId(machine): MachineId) -> u64 {
    let mixed = mix(certificate.wrapping_add(GOLDEN));
    mix(mixed ^ machine.wrapping_mul(GOLDEN))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
