//! Leaving root: [`Account::take_rights`].

use std::ffi::CString;
use std::fmt;
use std::io;

use nix::unistd;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
    set_thread_res_uid,
};
use sealane_config::Process;
use sealane_sandbox::become_user;

/// A user of this machine that is not root, with its groups.
#[derive(Clone, Debug)]
pub struct Account {
    name: String,
    user: Uid,
    group: Gid,
    /// The group's name, if `[process]` has one.
    group_name: Option<String>,
    groups: Vec<Gid>,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Account {
    /// Looks up whom `process` names, if it names somebody.
    ///
    /// # Errors
    /// This machine does not know the user or the group, or it is root.
    pub fn named(process: &Process) -> Result<Option<Self>, AccountError> {
        let Some(name) = &process.user else { return Ok(None) };
        let user = known("user", name, unistd::User::from_name(name))?;
        if user.uid.is_root() {
            return Err(AccountError::Root { name: name.clone() });
        }
        let group = match &process.group {
            Some(name) => known("group", name, unistd::Group::from_name(name))?.gid,
            None => user.gid,
        };
        let in_c = CString::new(name.as_str());
        let groups = in_c.map_err(|_| nix::Error::EINVAL);
        let groups = groups.and_then(|name| unistd::getgrouplist(&name, group));
        let groups = known("user", name, groups.map(Some))?;
        Ok(Some(Self {
            name: name.clone(),
            user: Uid::from_raw(user.uid.as_raw()),
            group: Gid::from_raw(group.as_raw()),
            group_name: process.group.clone(),
            groups: groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect(),
        }))
    }

    /// Makes this process one of the account, for good, and says whether it was another's. It must
    /// be called while there is no other thread. Of root's capabilities it keeps the one by which
    /// ports below 1024 are bound, as the unit in packaging has it, so that a reload can.
    ///
    /// # Errors
    /// This is neither root nor the account, or of another group than the one that is named, or the
    /// system refuses.
    pub fn take_rights(&self) -> Result<bool, AccountError> {
        let own = geteuid();
        if own == self.user {
            return self.is_taken().map(|()| false);
        }
        if !own.is_root() {
            return Err(AccountError::NotRoot { name: self.name.clone(), own: own.as_raw() });
        }
        let refused =
            |error: Errno| AccountError::System { name: self.name.clone(), error: error.into() };
        self.change().map_err(refused).map(|()| true)
    }

    /// Whether a process that is of the account already has no way back, and is of its group.
    fn is_taken(&self) -> Result<(), AccountError> {
        let name = || self.name.clone();
        let refused = |error: io::Error| AccountError::System { name: name(), error };
        // From the caller's own user to that user: whoever has it may, whatever it was before.
        set_thread_res_uid(self.user, self.user, self.user).map_err(|e| refused(e.into()))?;
        let groups = unistd::getresgid().map_err(|error| refused(error.into()))?;
        let own = [groups.real, groups.effective, groups.saved].map(unistd::Gid::as_raw);
        match &self.group_name {
            Some(group) if own != [self.group.as_raw(); 3] => {
                Err(AccountError::OtherGroup { group: group.clone(), own: own[1] })
            }
            _ => Ok(()),
        }
    }

    fn change(&self) -> rustix::io::Result<()> {
        // While this thread may still do it: a program that this process starts gets no more.
        for capability in CapabilitySet::all().iter().filter(|one| *one != KEPT) {
            if !capability_is_in_bounding_set(capability).unwrap_or(false) {
                continue;
            }
            match remove_capability_from_bounding_set(capability) {
                // A container may start a process as root that may not do this.
                Err(Errno::PERM) => break,
                removed => removed?,
            }
        }
        // Or else the next calls take all of them.
        set_keep_capabilities(true)?;
        become_user(self.user, self.group, &self.groups)?;
        set_keep_capabilities(false)?;
        let kept = capabilities(None)?.permitted & KEPT;
        let inheritable = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
    }
}

/// The one capability of a process that has left root.
const KEPT: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

fn known<T>(kind: &'static str, name: &str, found: nix::Result<Option<T>>) -> Found<T> {
    let name = name.to_owned();
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(AccountError::Unknown { kind, name }),
        Err(error) => Err(AccountError::Unread { kind, name, error: error.into() }),
    }
}

type Found<T> = Result<T, AccountError>;

/// The process cannot be one of the account that `[process]` names: a mistake of the operator.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// This is not root, who alone can become somebody else.
    #[error(
        "process.user: only root can become {name:?}, and this is the user {own}; start it as \
         root, or remove the key and let the service manager start it as that user \
         (packaging/sealane.service)"
    )]
    NotRoot {
        /// Who is named.
        name: String,
        /// Who this is.
        own: u32,
    },
    /// The process is the user's already, but not of the group.
    #[error(
        "process.group: {group:?} is not the group of this process, which is {own}, and only root \
         can change that; start it with that group (Group= in a unit), or remove the key"
    )]
    OtherGroup {
        /// What is named.
        group: String,
        /// The number of the group that it has.
        own: u32,
    },
    /// The process would stay what it is to leave.
    #[error("process.user: {name:?} is root, with whom nothing is left; name another user")]
    Root {
        /// Who is named.
        name: String,
    },
    /// The system refuses.
    #[error(
        "process.user: cannot become {name:?}: {error}; is a capability missing (CAP_SETUID, \
         CAP_SETGID)? Start it as that user instead, and remove the key"
    )]
    System {
        /// Who is named.
        name: String,
        /// The system's reason.
        error: io::Error,
    },
    /// This machine knows no such name.
    #[error(
        "process.{kind}: there is no {kind} {name:?} on this machine; add it, as \
         packaging/sealane.sysusers.conf adds \"sealane\", or name another"
    )]
    Unknown {
        /// The key.
        kind: &'static str,
        /// What it has.
        name: String,
    },
    /// Whether this machine knows the name cannot be found out.
    #[error("process.{kind}: {name:?} cannot be looked up: {error}; try `getent` with it")]
    Unread {
        /// The key.
        kind: &'static str,
        /// What it has.
        name: String,
        /// The system's reason.
        error: io::Error,
    },
}
