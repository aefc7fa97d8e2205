//! The part of a URL behind `?`: [`pairs`].

/// All names with their values, decoded, as a form sends them.
///
/// # Errors
/// One is no text, or has no value.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let written = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = written.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match (decode(name), decode(value)) {
            (Some(name), Some(value)) if !value.is_empty() => Ok((name, value)),
            _ => Err(format!("{pair:?} is no name with its value, as a URL has them")),
        }
    });
    pairs.collect()
}

/// A name or a value, decoded; none if it is no text.
pub fn decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|each| !each.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
