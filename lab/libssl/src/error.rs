//! Why a library could not be loaded, or what it refused: [`Error`].

use std::path::PathBuf;

/// What went wrong, and whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file, or the dynamic linker will not have it.
    #[error("{path} cannot be loaded: {reason}")]
    Load {
        /// The file or library name that was asked for.
        path: String,
        /// The dynamic linker's own words.
        reason: String,
    },
    /// An OpenSSL from before 1.1.0, whose functions are other ones.
    #[error(
        "{path} is {version}: in memory the lab drives 1.1.1 and later, and this one over sockets: \
         sealane-lab bulk --runtime asio --tls 1.2 --group p256 --stack {path}"
    )]
    Older {
        /// The file.
        path: String,
        /// What it calls itself.
        version: String,
    },
    /// A library was loaded that lacks a function: another kind of library, or too old a one.
    #[error(
        "{path} has no function {symbol}: it is not {wanted}, or one older than the lab can use"
    )]
    Symbol {
        /// The file.
        path: String,
        /// The function.
        symbol: &'static str,
        /// What it was taken for.
        wanted: &'static str,
    },
    /// A library is loaded already, and a second one would share its libcrypto.
    #[error(
        "{asked} cannot be loaded beside {loaded}: a process holds one TLS library, start another"
    )]
    Second {
        /// The one in this process.
        loaded: PathBuf,
        /// The one asked for.
        asked: PathBuf,
    },
    /// The dynamic linker gave this libssl a libcrypto that is not the one beside it.
    #[error(
        "{libssl} is bound to {libcrypto}, not to the {beside} beside it; build it with a rpath"
    )]
    OtherCrypto {
        /// The library.
        libssl: PathBuf,
        /// What it uses.
        libcrypto: PathBuf,
        /// What it should use.
        beside: PathBuf,
    },
    /// The library cannot do what was asked of it.
    #[error("{library} has no {what}")]
    Unsupported {
        /// The library's own version text.
        library: String,
        /// A suite, group or version.
        what: String,
    },
    /// The library cannot do what was asked of it, in its own words.
    #[error("{0}")]
    Refused(String),
    /// A call failed; the library's own words.
    #[error("{call}: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// The library's error queue, oldest first.
        reason: String,
    },
    /// A client was given no name to demand in the server's certificate: a library would take any.
    #[error("a client needs the server's name; an empty one would fit every certificate")]
    NoName,
    /// A name or path holds a zero byte.
    #[error("{0:?} holds a zero byte")]
    ZeroByte(String),
}
