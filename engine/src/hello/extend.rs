//! Hellos that tests make of others.

/// Adds an extension behind the others of a hello, and mends the lengths around it.
pub(crate) fn extend(message: &mut Vec<u8>, kind: u16, content: &[u8]) {
    let at = extensions_at(message);
    message.extend(kind.to_be_bytes());
    message.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
    message.extend(content);
    let (all_len, extensions_len) = (message.len() - 4, message.len() - at - 2);
    message[1..4].copy_from_slice(&u32::try_from(all_len).unwrap().to_be_bytes()[1..]);
    let extensions_len = u16::try_from(extensions_len).unwrap().to_be_bytes();
    message[at..at + 2].copy_from_slice(&extensions_len);
}

/// The position of the extensions of a hello, with the length before them.
pub(super) fn extensions_at(message: &[u8]) -> usize {
    // Header, version, random, session id, suites, compressions.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(message[at]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    at
}
