//! The account with an authority: made once, its key in the store before the authority hears of it.

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, Error, ExternalAccountKey, Key, NewAccount,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sealane_certificate_files::{Exposed, MARK, mode_for_others, open_regular};
use sealane_renewal::UnixSeconds;
use zeroize::Zeroizing;

use crate::failure::{Failed, is_unknown_account, plain};
use crate::fleet::Fleet;
use crate::http::Https;
use crate::ledger::{AccountEntry, Ledger};
use crate::nonces::with_nonces;
use crate::secret::Secret;
use crate::settings::{Authority, ExternalAccount};

/// An authority that can be asked: its account, and the client that it is asked with.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) account: Account,
    pub(crate) https: Https,
}

impl Opened {
    /// Opens the account that is remembered with `authority`, or a new one.
    ///
    /// # Errors
    /// The authority refuses, does not answer, or the store cannot be written.
    pub(crate) async fn with(
        authority: &Authority,
        ledger: &Ledger,
        fleet: Option<&Fleet>,
        now: UnixSeconds,
    ) -> Result<Self, Failed> {
        let https = Https::trusting(&authority.roots).map_err(|e| Failed::ours(e.to_string()))?;
        let opening = Opening { authority, https: &https, ledger, now };
        let entry = ledger.account(&authority.directory)?;
        let is_known = |entry: &AccountEntry| {
            let kid = opening.kid();
            entry.url.is_some() && (kid.is_none() || entry.kid == kid)
        };
        let is_new = !entry.as_ref().is_some_and(is_known);
        let account = match entry {
            // Bound to another external account, it is another account.
            Some(entry) if opening.kid().is_some() && entry.kid != opening.kid() => {
                opening.register(new_key()?).await?
            }
            Some(entry) => opening.known(entry).await?,
            None => opening.register(new_key()?).await?,
        };
        let account = match fleet {
            Some(fleet) => opening.settled(fleet, account, is_new).await?,
            None => account,
        };
        Ok(Self { account, https })
    }
}

/// An account that is being opened.
struct Opening<'o> {
    authority: &'o Authority,
    https: &'o Https,
    ledger: &'o Ledger,
    now: UnixSeconds,
}

impl Opening<'_> {
    async fn known(&self, entry: AccountEntry) -> Result<Account, Failed> {
        let Some(url) = &entry.url else {
            // An agent was ended between two steps; a key that is known gets the same account.
            return self.register(entry.key.clone()).await;
        };
        let key = PrivatePkcs8KeyDer::from(entry.key.0.as_slice());
        let directory = self.authority.directory.clone();
        let account = self.builder().from_parts(url.clone(), key, directory).await;
        let account = account.map_err(|error| self.failed(&error))?;
        if entry.contact == self.authority.contact {
            return Ok(account);
        }
        let contact: Vec<&str> = self.authority.contact.iter().map(String::as_str).collect();
        match with_nonces(async || account.update_contacts(&contact).await).await {
            Err(error) if is_unknown_account(&error) => self.register(entry.key.clone()).await,
            Err(error) => Err(self.failed(&error)),
            Ok(()) => {
                let contact = self.authority.contact.clone();
                self.ledger
                    .keep_account(&self.authority.directory, &AccountEntry { contact, ..entry })?;
                Ok(account)
            }
        }
    }

    /// The account of the whole fleet: an order is a matter of one account, and so are limits. The
    /// first that a machine tells of is it; what another has opened meanwhile is left unused. But
    /// what the authority has just told of the same key, or of another external account, takes the
    /// place of what it told before.
    async fn settled(
        &self,
        fleet: &Fleet,
        account: Account,
        is_new: bool,
    ) -> Result<Account, Failed> {
        let directory = &self.authority.directory;
        let Some(own) = self.ledger.account(directory)? else { return Ok(account) };
        let (name, text) = Ledger::account_text(directory, &own)?;
        let settled = fleet.settle(&name, &text).await?;
        if *settled == *text {
            return Ok(account);
        }
        let theirs = Ledger::account_of(directory, &settled)?;
        if is_new && (theirs.kid != own.kid || theirs.key.0 == own.key.0) {
            fleet.replace(&name, &settled, &text).await?;
            return Ok(account);
        }
        self.ledger.keep_account(directory, &theirs)?;
        self.known(theirs).await
    }

    /// Makes the account of `key`, which is remembered first.
    async fn register(&self, key: Secret) -> Result<Account, Failed> {
        let directory = &self.authority.directory;
        let mut entry = AccountEntry {
            contact: self.authority.contact.clone(),
            key,
            kid: self.kid(),
            url: None,
        };
        let (account, key) = match &self.authority.external_account {
            // The library binds keys alone that it makes itself.
            Some(external) => self.bound(external).await?,
            None => {
                self.ledger.keep_account(directory, &entry)?;
                (self.of_key(&entry.key).await?, entry.key.clone())
            }
        };
        entry.key = key;
        entry.url = Some(account.id().to_owned());
        self.ledger.keep_account(directory, &entry)?;
        Ok(account)
    }

    /// The name of the external account that the settings bind it to.
    fn kid(&self) -> Option<String> {
        self.authority.external_account.as_ref().map(|external| external.kid.clone())
    }

    async fn of_key(&self, key: &Secret) -> Result<Account, Failed> {
        let directory = &self.authority.directory;
        let contact: Vec<&str> = self.authority.contact.iter().map(String::as_str).collect();
        let created = with_nonces(async || {
            let signing = Key::from_pkcs8_der(PrivatePkcs8KeyDer::from(key.0.as_slice()))?;
            let encoded = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.0.clone()));
            self.builder().create_from_key((signing, encoded), directory.clone()).await
        });
        let (account, _) = created.await.map_err(|error| self.failed(&error))?;
        if !contact.is_empty() {
            let updated = with_nonces(async || account.update_contacts(&contact).await).await;
            updated.map_err(|error| self.failed(&error))?;
        }
        Ok(account)
    }

    async fn bound(&self, external: &ExternalAccount) -> Result<(Account, Secret), Failed> {
        let key = external_key(external)?;
        let directory = &self.authority.directory;
        let contact: Vec<&str> = self.authority.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let created =
            with_nonces(async || self.builder().create(&new, directory.clone(), Some(&key)).await);
        let (account, credentials): (Account, AccountCredentials) =
            created.await.map_err(|error| self.failed(&error))?;
        let key = credentials.private_key().secret_pkcs8_der().to_vec();
        Ok((account, Secret(key)))
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.https.clone()))
    }

    fn failed(&self, error: &Error) -> Failed {
        let doing = format!("{}: the account", self.authority.directory);
        let failed = Failed::of_answer(&doing, error, self.https.told_until(), self.now);
        let is_elsewhere = match error {
            Error::Json(_) => true,
            Error::Api(problem) => {
                problem.r#type.is_none() && matches!(problem.status, Some(404 | 405 | 410))
            }
            _ => false,
        };
        if !is_elsewhere {
            return failed;
        }
        let text = format!(
            "{}: is no ACME directory ({}); correct directory in [[authority]]: the CA's \
             documentation has the URL",
            self.authority.directory,
            plain(&error.to_string())
        );
        Failed { text, ..failed }
    }
}

fn new_key() -> Result<Secret, Failed> {
    let made = Key::generate_pkcs8().map_err(|error| Failed::ours(error.to_string()))?;
    Ok(Secret(made.1.secret_pkcs8_der().to_vec()))
}

/// The key that an authority has given for its account: base64url in a file that others than this
/// user and group cannot read.
pub(crate) fn external_key(external: &ExternalAccount) -> Result<ExternalAccountKey, Failed> {
    use std::io::Read as _;

    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

    let path = &external.key_file;
    let unreadable = |what: String| {
        Failed::ours(format!(
            "external_account.key_file: {}: {what}; put the key there as the CA gave it, in \
             base64url",
            path.display()
        ))
    };
    let file = open_regular(path).map_err(|error| unreadable(error.to_string()))?;
    let facts = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if let Some(mode) = mode_for_others(&facts) {
        return Err(Failed::ours(Exposed { path: path.clone(), mode }.to_string()));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(EXTERNAL_KEY_BYTES_MAX));
    let read = file.take(EXTERNAL_KEY_BYTES_MAX as u64).read_to_end(&mut text);
    read.map_err(|error| unreadable(error.to_string()))?;
    let written = text.strip_prefix(MARK).unwrap_or(&text).trim_ascii();
    let end = written.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let key = BASE64_URL_SAFE_NO_PAD.decode(&written[..end]);
    let key = Zeroizing::new(key.map_err(|_| unreadable("is no base64url".into()))?);
    Ok(ExternalAccountKey::new(external.kid.clone(), &key))
}

/// Bytes of a file with an external account's key.
const EXTERNAL_KEY_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn external_key_is_a_file_of_base64url() {
        let folder = tempfile::tempdir().unwrap();
        let key_file = folder.path().join("eab.key");
        let external = ExternalAccount { key_file: key_file.clone(), kid: "kid-1".into() };
        let refusal = || external_key(&external).err().map(|failed| failed.text);
        rustix::fs::mkfifoat(rustix::fs::CWD, &key_file, rustix::fs::Mode::RWXU).unwrap();
        assert!(refusal().unwrap().contains("eab.key: it is a named pipe, not a file"));
        std::fs::remove_file(&key_file).unwrap();
        for (text, is_key) in [("\u{feff}QUJD=\n", true), ("AB*", false)] {
            std::fs::write(&key_file, text).unwrap();
            let own = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&key_file, own).unwrap();
            assert_eq!(refusal().is_none(), is_key, "{text}");
        }
    }
}
