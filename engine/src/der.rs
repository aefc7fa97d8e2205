//! Elements of DER, for the few structures that no parser in use reads: [`take`].

/// An element of DER.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) content: &'a [u8],
    pub(crate) tag: u8,
    /// With its tag and its length.
    pub(crate) whole: &'a [u8],
}

/// Takes the first element off `bytes`; none if it is damaged or longer than they are.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Element<'a>> {
    let [tag, len, rest @ ..] = *bytes else { return None };
    let (len, rest) = match *len {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(len)?;
    let whole = bytes.get(..bytes.len() - after.len())?;
    *bytes = after;
    Some(Element { content, tag: *tag, whole })
}

/// Takes all elements off `bytes`; none if one is damaged.
pub(crate) fn take_all(mut bytes: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(take(&mut bytes)?);
    }
    Some(all)
}

pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const SEQUENCE: u8 = 0x30;
