//! File descriptors: as many as the system allows, and for how many clients they are enough.

use std::io;

use rustix::{
    io::Errno,
    process::{Resource, getrlimit, setrlimit},
};

/// Most connections to the admin side.
const OPERATORS: u64 = 64;
/// Most connections of who calls as another dispatcher would and has not shown that it is one.
const STRANGERS: u64 = 32;
/// Kept for what is no client and no pod's connection for one: these, and some 50 files, threads and listeners, and scrapes.
const RESERVE: u64 = OPERATORS + STRANGERS + 96;
/// Parts of all, of which the admin side has as many as that, and strangers half of it: so that a limit below the usual one of 1,024
/// leaves files for others.
const PART: u64 = 16;
/// But so many in any case: a probe and a scrape come while somebody looks.
const LEAST: u64 = 4;

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
    limit().map_or(usize::MAX, |limit| size(limit.saturating_sub(RESERVE) / 2).max(1))
}

/// Connections that the admin side may have.
pub fn most_operators() -> usize {
    size(part_of(limit(), PART, OPERATORS))
}

/// Connections that strangers may have on the port of other dispatchers.
pub fn most_strangers() -> usize {
    size(part_of(limit(), PART * 2, STRANGERS))
}

fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

fn part_of(limit: Option<u64>, part: u64, most: u64) -> u64 {
    limit.map_or(most, |limit| (limit / part).clamp(LEAST, most))
}

fn size(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
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

    #[test]
    fn who_is_no_client_has_a_small_part_of_the_files() {
        for (limit, operators, strangers) in
            [(Some(64), 4, 4), (Some(256), 16, 8), (Some(1024), 64, 32), (None, 64, 32)]
        {
            assert_eq!(part_of(limit, PART, OPERATORS), operators);
            assert_eq!(part_of(limit, PART * 2, STRANGERS), strangers);
        }
    }
}
