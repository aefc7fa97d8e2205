//! s2n-tls by its path.
