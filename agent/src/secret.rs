//! A private key of the agent's.

use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

/// The bytes of a private key; in no `Debug`.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Secret(#[serde(with = "base64_text")] pub(crate) Vec<u8>);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

mod base64_text {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use serde::{Deserialize, Deserializer, Serializer, de};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&Zeroizing::new(BASE64_STANDARD.encode(bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = Zeroizing::new(String::deserialize(from)?);
        BASE64_STANDARD.decode(&*text).map_err(|_| de::Error::custom("no base64"))
    }
}
