//! What follows the question mark of a request: [`Query`].

use sealane_store_requests::query::{decode, pairs};

use super::message::Request;

/// Names with values, as a form sends them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(String);

impl Query {
    /// That of a request.
    pub fn of(request: &Request<'_>) -> Self {
        Self(request.query.unwrap_or_default().to_owned())
    }

    /// All of them, decoded.
    ///
    /// # Errors
    /// One is no text, or has no value.
    pub fn pairs(&self) -> Result<Vec<(String, String)>, String> {
        pairs(&self.0)
    }

    /// The first value of `name`, decoded; none if there is none.
    ///
    /// # Errors
    /// It is no text.
    pub fn value(&self, name: &str) -> Result<Option<String>, String> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(each, _)| *each == name).map(|(_, value)| {
            decode(value)
                .ok_or_else(|| format!("{name}: {value:?} is not encoded as a URL wants it"))
        });
        value.transpose()
    }
}

/// `text` as a value, for whoever asks.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_broken_ones_are_told() {
        for text in ["", "tls://[::1]:8443", "unix:/run/a b&c=d%.sock", "\u{fc}\0+"] {
            let query = Query(format!("a=1&b={}&b=2", encode(text)));
            assert_eq!(query.value("b"), Ok(Some(text.to_owned())));
        }
        for value in ["%", "%1", "%zz", "%+1", "%ff"] {
            assert!(Query(format!("a={value}")).value("a").is_err(), "{value}");
        }
        assert_eq!(Query::default().value("a"), Ok(None));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pairs = Query("a=%26&&b=*.c=d&a=2".into()).pairs();
        assert_eq!(pairs, Ok(vec![pair("a", "&"), pair("b", "*.c=d"), pair("a", "2")]));
        assert_eq!(Query::default().pairs(), Ok(Vec::new()));
        for wrong in ["a", "a=", "a=1&b=%"] {
            assert!(Query(wrong.into()).pairs().is_err(), "{wrong}");
        }
    }
}
