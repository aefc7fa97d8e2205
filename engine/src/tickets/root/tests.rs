//! Roots: how keys are derived from them, how they advance, and their text form.

use hkdf::Hkdf;
use proptest::prelude::*;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::text::LINE_BYTES_MAX;
use super::*;
use crate::tickets::secret::LABEL_SHARED;

const POLICY: PolicyDigest = PolicyDigest([7; 32]);

fn root_at(epoch: u64) -> TicketRoot {
    let now = UnixSeconds(epoch * u64::from(LIFETIME_DEFAULT_S));
    let lifetime = Duration::from_secs(LIFETIME_DEFAULT_S.into());
    TicketRoot::generate(lifetime, now, |bytes| bytes.fill(0xa5)).unwrap()
}

fn key(root: &TicketRoot, epoch: u64) -> Option<Secret> {
    root.key(Epoch(epoch), 0, &POLICY).unwrap()
}

#[test]
fn derivation_is_hkdf_expand() {
    let secret = Zeroizing::new([0x5a; 32]);
    let mut expected = [0; 32];
    let hkdf = Hkdf::<Sha256>::from_prk(secret.as_slice()).unwrap();
    hkdf.expand_multi_info(&[LABEL_KEY, &POLICY.0], &mut expected).unwrap();
    assert_eq!(*derive(&secret, LABEL_KEY, &POLICY.0), expected);
}

#[test]
fn keys_of_shared_secrets_are_hkdf() {
    let secrets = [[0x5a; 48], [0xa5; 48]];
    let root = TicketRoot::shared(&secrets, LIFETIME_DEFAULT_S).unwrap();
    for (number, secret) in secrets.iter().enumerate() {
        let mut expected = [0; 32];
        let hkdf = Hkdf::<Sha256>::new(Some(LABEL_SHARED), secret);
        hkdf.expand_multi_info(&[&10_u64.to_be_bytes(), &POLICY.0], &mut expected).unwrap();
        assert_eq!(**root.key(Epoch(10), number, &POLICY).unwrap().as_ref().unwrap(), expected);
    }
    assert!(root.key(Epoch(10), secrets.len(), &POLICY).unwrap().is_none());
}

#[test]
fn an_epoch_begins_on_the_second() {
    let root = root_at(10);
    let start = 10 * u64::from(LIFETIME_DEFAULT_S);
    assert_eq!(root.epoch_at(UnixSeconds(start - 1)), Epoch(9));
    assert_eq!(root.epoch_at(UnixSeconds(start)), Epoch(10));
    assert_eq!(root.epoch_end(UnixSeconds(start)).0, start + u64::from(LIFETIME_DEFAULT_S));
    assert_eq!(root.oldest_accepted_at(UnixSeconds(0)), Epoch(0));
}

#[test]
fn looking_ahead_gives_the_keys_that_advancing_gives() {
    let root = root_at(10);
    let mut advanced = root.clone();
    advanced.advance_to(Epoch(12)).unwrap();
    assert_eq!(key(&root, 12).unwrap(), key(&advanced, 12).unwrap());
    assert_eq!(root.epoch(), Epoch(10));
    let keys = [10, 11, 12].map(|epoch| key(&root, epoch).unwrap());
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    let other = root.key(Epoch(10), 0, &PolicyDigest([8; 32])).unwrap().unwrap();
    assert_ne!(other, keys[0]);
}

#[test]
fn advancing_erases_and_never_goes_back() {
    let mut root = root_at(10);
    let Secrets::Ratchet(before) = root.secrets.clone() else { panic!() };
    root.advance_to(Epoch(11)).unwrap();
    assert!(matches!(&root.secrets, Secrets::Ratchet(after) if *after != before));
    assert!(key(&root, 10).is_none());
    let advanced = root.to_text().unwrap();
    root.advance_to(Epoch(10)).unwrap();
    assert_eq!(root.to_text().unwrap(), advanced);
}

#[test]
fn advances_to_the_limit_and_beyond_it_changes_nothing() {
    let mut root = root_at(10);
    let before = root.to_text().unwrap();
    let beyond = Epoch(10 + RATCHET_STEPS_MAX + 1);
    assert_eq!(
        root.advance_to(beyond),
        Err(TicketRootError::ClockAhead { root: Epoch(10), clock: beyond })
    );
    assert!(root.advance_to(Epoch(u64::MAX)).is_err());
    assert_eq!(root.to_text().unwrap(), before);
    root.advance_to(Epoch(10 + RATCHET_STEPS_MAX)).unwrap();
    assert_eq!(root.epoch(), Epoch(10 + RATCHET_STEPS_MAX));
}

#[test]
fn lifetimes_outside_the_range_are_refused() {
    for (lifetime_ms, good) in [
        (599_000, false),
        (600_000, true),
        (600_001, false),
        (604_800_000, true),
        (604_801_000, false),
        (u64::MAX, false),
    ] {
        let lifetime = Duration::from_millis(lifetime_ms);
        let root = TicketRoot::generate(lifetime, UnixSeconds(0), |_| ());
        assert_eq!(root.is_ok(), good, "{lifetime_ms}");
    }
}

#[test]
fn text_round_trip() {
    let root = root_at(40_000);
    let text = root.to_text().unwrap();
    assert_eq!(*text, format!("sealane-ticket-root 1 43200 40000 {}\n", "a5".repeat(32)));
    let read = TicketRoot::from_text(
        &text.to_uppercase().replace("SEALANE-TICKET-ROOT", "sealane-ticket-root"),
    );
    assert_eq!(read.unwrap().to_text().unwrap(), text);
    let last = TicketRoot { epoch: Epoch(u64::MAX), lifetime_s: LIFETIME_S_MAX, ..root };
    assert!(last.to_text().unwrap().len() <= TEXT_BYTES_MAX);
    assert_eq!(
        TicketRoot::from_text(&last.to_text().unwrap()).unwrap().to_text().unwrap(),
        last.to_text().unwrap()
    );
}

#[test]
fn each_fault_of_a_text_has_its_error() {
    let hex = "a5".repeat(32);
    let line = format!("sealane-ticket-root 1 43200 4 {hex}\n");
    let each = |at| format!("sealane-ticket-root 1 43200 {at} {hex}\n");
    let many: String = (1..=ROOTS_MAX as u64 + 1).map(each).collect();
    let cases = [
        (String::new(), TicketRootError::Title),
        (format!("sealane-root 1 43200 4 {hex}"), TicketRootError::Title),
        ("sealane-ticket-root".into(), TicketRootError::Fields),
        (format!("sealane-ticket-root 2 43200 4 {hex}"), TicketRootError::Version),
        (format!("sealane-ticket-root 1 43200 {hex}"), TicketRootError::Fields),
        (format!("sealane-ticket-root 1 43200 4 {hex} x"), TicketRootError::Fields),
        (format!("sealane-ticket-root 1 12h 4 {hex}"), TicketRootError::Lifetime),
        (format!("sealane-ticket-root 1 599 4 {hex}"), TicketRootError::Lifetime),
        (format!("sealane-ticket-root 1 43200 -4 {hex}"), TicketRootError::Epoch),
        (format!("sealane-ticket-root 1 43200 4 {}", &hex[1..]), TicketRootError::Secret),
        (format!("sealane-ticket-root 1 43200 4 {}g", &hex[1..]), TicketRootError::Secret),
        (format!("sealane-ticket-root 1 43200 4 {}", "é".repeat(32)), TicketRootError::Secret),
        (" ".repeat(TEXT_BYTES_MAX + 1), TicketRootError::TooLong),
        (format!("{}{line}", " ".repeat(LINE_BYTES_MAX)), TicketRootError::TooLong),
        (format!("{line}{line}"), TicketRootError::Order),
        (format!("{line}sealane-ticket-root 1 600 5 {hex}\n"), TicketRootError::Lifetimes),
        (format!("{line}\n{} x", line.trim_end()), TicketRootError::Fields),
        (many, TicketRootError::Roots),
    ];
    for (text, expected) in cases {
        let error = TicketRoot::from_text(&text).unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(!error.to_string().contains("a5"), "{error}");
    }
}

#[test]
fn debug_hides_the_secret() {
    let shown = format!("{:?}", root_at(10));
    assert_eq!(shown, "TicketRoot { epoch: Epoch(10), lifetime_s: 43200, .. }");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(sealane-ticket-root )?\\PC{0,140}") {
        let _ = TicketRoot::from_text(&text);
    }
}
