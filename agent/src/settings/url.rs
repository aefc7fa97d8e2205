//! What a URL in the settings is safe for: [`Way`].

use http::Uri;

/// Whether somebody on the way to a server can read and change what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nobody can: the server is of this machine, or shows a certificate.
    Closed,
    /// Everybody can.
    Open,
    /// No server is named.
    Nowhere,
}

/// The way to a server.
pub(super) fn way_to(uri: Option<&Uri>) -> Way {
    let host = uri.and_then(Uri::host).unwrap_or_default();
    let is_near = matches!(host, "127.0.0.1" | "[::1]" | "localhost");
    match uri.and_then(Uri::scheme_str) {
        Some("https") => Way::Closed,
        Some("http") if is_near => Way::Closed,
        Some("http") => Way::Open,
        _ => Way::Nowhere,
    }
}
