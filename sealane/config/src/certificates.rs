//! Where certificates come from: files, directories, pairs of files, and certificate stores.

use std::path::{Path, PathBuf};

use sealane_certificate_files::CertificateSource;
use sealane_operator::key::{Bool, Either, Group, Key, Or, PathKind, Set, TableKind, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};
use sealane_store::NAMES_SOCKET;

use crate::claims::Claims;
use crate::value;

/// Files and directories, and a store if there is one.
pub(crate) fn certificates(
    table: &Table<'_>,
    needs_none: bool,
) -> Option<(Vec<CertificateSource>, Option<PathBuf>)> {
    if needs_none && table.value(&CERTIFICATES).is_none() {
        return Some((Vec::new(), None));
    }
    let example = "certificates = [\"/etc/sealane/certificates\"]";
    let written = table.required(&CERTIFICATES, example)?;
    let mut store = None;
    let mut files = Vec::new();
    let sources = written.set(CERTIFICATES.kind.1, |v| match store_path(v) {
        None => certificate_source(v).map(|source| (Some(source), None)),
        Some(path) => Some((None, Some(path?))),
    })?;
    for (file, path) in sources {
        files.extend(file);
        if store.is_some() && path.is_some() {
            written.wrong(Problem::new("two stores are named", STORES_REMEDY));
        }
        store = store.or(path);
    }
    Some((files, store))
}

/// The folder in `store:PATH`; the outer none for what is no store, the inner one for a mistake.
pub(crate) fn store_path(written: &Value<'_>) -> Option<Option<PathBuf>> {
    let text = written.as_text()?.strip_prefix("store:")?;
    Some(written.path_of(text))
}

pub(crate) fn certificate_source(written: &Value<'_>) -> Option<CertificateSource> {
    if !written.is_table() {
        return written.path().map(CertificateSource::Path);
    }
    written.table(&PAIR, |table| {
        let chain = table.required(&CHAIN, "chain = \"FILE\"").and_then(|v| CHAIN.read(&v));
        let key = table.required(&KEY, "key = \"FILE\"").and_then(|v| KEY.read(&v));
        Some(CertificateSource::Pair { chain: chain?, key: key? })
    })
}

/// Certificates on demand come by a store, in whose folder their names are told.
pub(crate) fn on_demand(table: &Table<'_>, store: Option<&Path>, claims: &mut Claims) -> bool {
    let Some(written) = table.value(&ON_DEMAND) else { return false };
    let on_demand = ON_DEMAND.read(&written).unwrap_or(false);
    match store.filter(|_| on_demand) {
        None if on_demand => written.wrong(Problem::new(
            "means nothing without a certificate store, by which such certificates come",
            "write certificates = [\"store:PATH\"] too, or remove it",
        )),
        None => {}
        Some(store) => {
            let socket = store.join(NAMES_SOCKET);
            let bytes = socket.as_os_str().len();
            if bytes > value::UNIX_PATH_BYTES_MAX {
                let what =
                    format!("{} is where names are told, and has {bytes} bytes", socket.display());
                let max = value::UNIX_PATH_BYTES_MAX;
                let remedy = format!("choose a store whose socket has at most {max}");
                written.wrong(Problem::new(what, remedy));
            }
            claims.on_demand(store, &written);
        }
    }
    on_demand
}

/// A listener has one store at most, so that there is one answer to who serves a name.
pub(crate) const STORES_REMEDY: &str = "import into one store, or use two listeners";

pub(crate) static CERTIFICATES: Key<Set<Either<PathKind, TableKind>>> = Key::new(
    "certificates",
    Set(Either(PathKind, TableKind(&PAIR)), 10_000),
    "Files with a chain and its key; directories; and pairs of files. From a directory come *.pem, \
     NAME.crt or NAME.cer with NAME.key, and what certbot, lego, acme.sh and dehydrated keep, such \
     as /etc/letsencrypt/live. Of two certificates for one name and one kind of key, the one that \
     is valid today is served, then the one that expires last. An expired one gives way to a valid \
     wildcard. At most one \"store:PATH\", a folder that `sealane certificates` fills: it serves \
     the names that no file has, its changes are served at once, and the user of the process needs \
     write access. A key file that is open to more users than its owner and group causes a \
     warning. Required, unless the listener terminates no TLS.",
)
.examples(&["[
  \"/etc/sealane/certificates\",
  \"store:/var/lib/sealane/store\",
  { chain = \"/etc/ssl/www.example.com.crt\", key = \"/etc/ssl/private/www.example.com.key\" },
]"])
.see(&["store_key"]);

pub(crate) static PAIR: Group = Group::new(
    "listener.certificates",
    "A pair of files with a chain and its key.",
    &[&CHAIN, &KEY],
);

static CHAIN: Key<PathKind> =
    Key::new("chain", PathKind, "The file with the certificate and its chain, in PEM.")
        .examples(&["\"/etc/ssl/www.example.com.crt\""])
        .required();

static KEY: Key<PathKind> = Key::new("key", PathKind, "The file with the private key, in PEM.")
    .examples(&["\"/etc/ssl/private/www.example.com.key\""])
    .required();

pub(crate) static DEFAULT_CERTIFICATE: Key<Text<String>> = Key::new(
    "default_certificate",
    Text("host name", value::host_name),
    "The name whose certificate is served to clients that ask for no known name. Certificates of a \
     store are no default.",
)
.examples(&["\"www.example.com\""])
.without("the first certificate of a file")
.see(&["listener.unknown_names"]);

pub(crate) static ON_DEMAND: Key<Or<Bool>> = Key::new(
    "on_demand",
    Or(Bool, false),
    "Whether names without a certificate are reported to the agent, which obtains certificates on \
     demand. It needs a store among the certificates, one for all listeners with this key, and \
     [on_demand] in agent.toml. The names can be read at names.sock in the folder of the store, by \
     every user that can write to the store.",
)
.examples(&["true"]);
