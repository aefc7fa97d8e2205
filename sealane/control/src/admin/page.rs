//! The page at the admin address: what `/state` tells, for people, in their browser. Nothing of it
//! comes from elsewhere, and its policy lets nothing else run.

use std::sync::LazyLock;

use sealane_traffic::http::{ContentType, Request, Response, Status};

/// The page, if a browser asks.
pub(super) fn answer(request: &Request<'_>) -> Option<Response> {
    let wants_page = request.accept.is_some_and(|types| types.contains("text/html"));
    wants_page.then(|| {
        let page = Response::new(Status::Ok, ContentType::Html, PAGE.as_bytes());
        page.with_policy(POLICY)
    })
}

static PAGE: LazyLock<String> =
    LazyLock::new(|| FRAME.replace("{STYLE}", STYLE).replace("{SCRIPT}", SCRIPT));
const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The digests are those of the script and the style, which a test holds.
const POLICY: &str = "default-src 'none'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; \
    script-src 'sha256-Oo73lSphxZEm8wc3W59sBqLdPbJsOmNSs5gLt6SR+Dc='; \
    style-src 'sha256-BH+3MHtr/rJGZgRBdPTFThqcFuN0FOzOSKmdGvCGS5U='";

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_policy_has_the_digests_of_what_is_served() {
        for (kind, text) in [("script-src", SCRIPT), ("style-src", STYLE)] {
            let digest = base64(&Sha256::digest(text.as_bytes()));
            let expected = format!("{kind} 'sha256-{digest}'");
            assert!(POLICY.contains(&expected), "write {expected}");
            assert!(PAGE.contains(text) && !text.contains("</"), "nothing ends it early");
        }
    }

    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let group = |chunk: &[u8]| {
            let [a, b, c] = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
            let bits = a << 16 | b << 8 | c;
            let letter = |at: usize| match at > chunk.len() {
                true => '=',
                false => LETTERS[(bits >> (18 - 6 * at) & 63) as usize].into(),
            };
            [0, 1, 2, 3].map(letter)
        };
        bytes.chunks(3).flat_map(group).collect()
    }
}
