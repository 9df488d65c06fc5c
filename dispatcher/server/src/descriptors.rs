//! File descriptors: as many as the system allows, and for how many clients they are enough.

use std::io;

use rustix::{
    io::Errno,
    process::{Resource, getrlimit, setrlimit},
};

/// Kept for what is no client and no pod's connection for one: files, scrapes, the admin side.
const RESERVE: u64 = 128;

/// Takes as many as the system allows this process. The limit that a shell or an init system gives is mostly far below that.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit on open files cannot be raised");
        }
    }
}

/// Clients for which there are enough: each may need a pod's connection besides its own.
pub fn most_clients() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit.saturating_sub(RESERVE) / 2).unwrap_or(usize::MAX).max(1)
    })
}

/// Whether this machine lacks something for a connection: then that says nothing of whoever it was to go to.
pub fn is_short(error: &io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|error| lacks.contains(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_is_told_from_what_a_pod_refuses() {
        let of = |error: Errno| is_short(&io::Error::from(error));
        assert!(of(Errno::MFILE) && of(Errno::ADDRNOTAVAIL));
        assert!(!of(Errno::CONNREFUSED) && !is_short(&io::Error::other("no such name")));
    }

    #[test]
    fn as_many_files_as_may_be_are_taken() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!(most_clients() >= 1);
    }
}
