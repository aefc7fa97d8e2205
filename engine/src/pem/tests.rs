//! Texts as people write them; the comparison with OpenSSL is in `tests/pem.rs`.

use super::*;

const CERTIFICATE: &str =
    "-----BEGIN CERTIFICATE-----\nAAECAwQF\nBg==\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";

/// The kind, first line and content of a section.
type Read = (SectionKind, usize, Vec<u8>);

fn read(text: &str) -> Result<Vec<Read>, (usize, Damage)> {
    let found = sections(text.as_bytes()).map_err(|error| (error.line, error.damage))?;
    Ok(found.into_iter().map(|each| (each.kind, each.line, each.into_public())).collect())
}

fn certificate(line: usize) -> Read {
    (SectionKind::Certificate, line, vec![0, 1, 2, 3, 4, 5, 6])
}

fn key(line: usize) -> Read {
    (SectionKind::Key(KeyEncoding::Pkcs8), line, vec![1, 2, 3])
}

#[test]
fn harmless_text_is_skipped() {
    let both = || Ok(vec![certificate(1), key(5)]);
    let text = [CERTIFICATE, KEY].concat();
    assert_eq!(read(&text), both());
    assert_eq!(read(&text.replace('\n', "\r\n")), both());
    assert_eq!(read(&text.replace('\n', " \t\n")), both());
    assert_eq!(read(text.trim_end()), both());
    assert_eq!(read(&[CERTIFICATE, "\u{feff}", KEY].concat()), both());
    assert_eq!(read(&["\u{feff}\u{feff}", &text].concat()), both());
    let around = ["Bag Attributes\n", CERTIFICATE, "\nissuer=/CN=the end\n", KEY, "# END\n"];
    assert_eq!(read(&around.concat()), Ok(vec![certificate(2), key(8)]));
    let commented = CERTIFICATE.replace("-----B", "#-----B").replace("-----E", "# -----E");
    assert_eq!(read(&[&commented, CERTIFICATE].concat()), Ok(vec![certificate(5)]));
    let parameters = CERTIFICATE.replace("CERTIFICATE", "EC PARAMETERS");
    assert_eq!(read(&[&parameters, KEY].concat()), Ok(vec![key(5)]));
    assert_eq!(read(&CERTIFICATE.replace("CERT", "X509 CERT")), Ok(vec![certificate(1)]));
    assert_eq!(read(""), Ok(vec![]));
}

#[test]
fn damage_is_rejected_with_its_line() {
    let text = [CERTIFICATE, KEY].concat();
    for (from, to, line, damage) in [
        ("-----\n-----", "----------", 4, Damage::NewlineMissing),
        ("-----BEGIN P", " -----BEGIN P", 5, Damage::BadMark),
        ("-----BEGIN P", "----BEGIN P", 5, Damage::BadMark),
        ("-----BEGIN P", "-----begin P", 5, Damage::BadMark),
        ("-----BEGIN P", "BEGIN P", 5, Damage::BadMark),
        ("-----BEGIN P", "\u{2014}\u{2014}BEGIN P", 5, Damage::BadMark),
        ("KEY-----\nA", "KEY----\nA", 5, Damage::BadMark),
        ("KEY-----\nA", "KEY-----A", 5, Damage::NewlineMissing),
        ("-----BEGIN PRIVATE KEY-----\n", "", 6, Damage::UnexpectedEnd),
        ("END PRIVATE", "END EC PRIVATE", 7, Damage::EndDiffers),
        ("-----END PRIVATE", "----END PRIVATE", 7, Damage::NotBase64),
        ("-----END PRIVATE KEY-----\n", "", 5, Damage::EndMissing),
        ("-----END CERTIFICATE-----\n", "", 1, Damage::EndMissing),
        ("AQID\n", "", 5, Damage::Empty),
        ("AQID\n", "AQID\n\n", 7, Damage::BlankLine),
        ("AQID\n", "AQI\n", 5, Damage::NotBase64),
        ("AQID\n", "AQ=D\n", 6, Damage::NotBase64),
        ("AQID\n", "AQJ=\n", 5, Damage::NotBase64),
        ("AQID\n", "AQ!D\n", 6, Damage::NotBase64),
        ("AQID\n", "Comment: x\n\nAQID\n", 6, Damage::Header),
        (" PRIVATE", " OPENSSH PRIVATE", 5, Damage::OtherKey),
        (" PRIVATE", " PRIVAT", 5, Damage::UnknownType),
        ("BEGIN PRIVATE KEY", "BEGIN PKCS7", 5, Damage::Pkcs7),
        ("BEGIN CERTIFICATE", "BEGIN TRUSTED CERTIFICATE", 1, Damage::Trusted),
    ] {
        assert!(text.contains(from), "{from}");
        assert_eq!(read(&text.replace(from, to)), Err((line, damage)), "{from:?} {to:?}");
    }
    // Without a line feed the whole text is one line, which is no comment.
    let one_line = format!("# a comment\n{text}").replace('\n', "\r");
    assert_eq!(read(&one_line), Err((1, Damage::BadMark)));
    let utf16: Vec<u8> = text.bytes().flat_map(|byte| [byte, 0]).collect();
    for utf16 in [[b"\xff\xfe".as_slice(), &utf16].concat(), utf16] {
        assert_eq!(sections(&utf16).unwrap_err().damage, Damage::Utf16);
    }
}

#[test]
fn encrypted_keys_are_known_by_type_or_header() {
    let by_type = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let by_header = KEY.replace("AQID", "Proc-Type: 4,ENCRYPTED\nDEK-Info: A\n\nAQID");
    for text in [by_type, by_header] {
        assert_eq!(read(&text), Ok(vec![(SectionKind::EncryptedKey, 1, vec![])]));
    }
}

#[test]
fn base64_decodes_as_a_library_does() {
    use ::base64::Engine as _;
    let bytes: Vec<u8> = (0..=255).rev().chain(0..=255).collect();
    for len in 1..bytes.len() {
        let encoded = ::base64::engine::general_purpose::STANDARD.encode(&bytes[..len]);
        let mut decoder = base64::Decoder::default();
        for line in encoded.as_bytes().chunks(61) {
            assert!(decoder.add(line).is_ok());
        }
        assert_eq!(decoder.finish().ok().unwrap().as_slice(), &bytes[..len]);
    }
}

#[test]
fn foreign_formats_are_recognised() {
    for (bytes, expected) in [
        (b" \n".as_slice(), Foreign::Empty),
        (b"<!DOCTYPE html>", Foreign::Html),
        (b"hello", Foreign::Text),
        (b"\xfe\xed\xfe\xed\0\0\0\x02", Foreign::JavaKeystore),
        (b"\x30\x82\x09\xa0\x02\x01\x03\x30", Foreign::Pkcs12),
        (b"\x30\x80\x02\x01\x03\x30", Foreign::Pkcs12),
        (b"\x30\x82\x01\x8e\x30\x82\x01\x34\xa0\x03", Foreign::DerCertificate),
        (b"\x30\x82\x01\x8e\x30\x82\x01\x34\x02\x01\x01\x30", Foreign::DerList),
        (b"\x30\x82\x04\xbc\x02\x01\x00\x30\x0d", Foreign::DerKey),
        (b"\x30\x77\x02\x01\x01\x04\x20", Foreign::DerKey),
        (b"\x30\x81\x9e\x30\x49\x06\x09", Foreign::DerKey),
        (b"\x30\x82\x07\x06\x06\x09\x2a", Foreign::Pkcs7),
        (b"-----BEGIN CERTIFICATE REQUEST-----", Foreign::Request),
        (b"-----BEGIN PUBLIC KEY-----", Foreign::Sections),
    ] {
        assert_eq!(Foreign::of(bytes), expected);
    }
}
