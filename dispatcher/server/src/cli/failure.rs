//! Why a command did not do what it was asked, as one line that says what to do, and an exit code.
//!
//! The codes are those of sysexits.h where it has a word for the case, so that a script can tell a
//! dispatcher that is down from a request that has left the queue.

/// Done.
const DONE: u8 = 0;
/// It was tried and did not work.
const FAILED: u8 = 1;
/// The command line is wrong. clap's own code for it.
const USAGE: u8 = 2;
/// The configuration cannot be used.
pub(super) const BAD_CONFIG: u8 = 64;
/// What was named is not there (EX_NOINPUT).
const NOT_FOUND: u8 = 66;
/// The admin side does not answer (EX_UNAVAILABLE).
const UNREACHABLE: u8 = 69;
/// The admin side does not let us (EX_NOPERM).
const REFUSED: u8 = 77;

/// Every exit code with its meaning, as `weir --help` prints them.
pub(super) const CODES: [(u8, &str); 7] = [
    (DONE, "done"),
    (FAILED, "tried, and it did not work"),
    (USAGE, "wrong usage"),
    (BAD_CONFIG, "the configuration, or a profile file, cannot be used"),
    (NOT_FOUND, "no such request, lane, pod or model version"),
    (UNREACHABLE, "the admin side does not answer"),
    (REFUSED, "no token, an unknown one, or one whose scope is not enough"),
];

/// Why a command did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// It was asked for in a way that cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// A configuration or a profile cannot be used.
    #[error("{0}")]
    Config(String),
    /// What was named is not there.
    #[error("{0}")]
    NotFound(String),
    /// Nobody answers, or somebody else does.
    #[error("{0}")]
    Unreachable(String),
    /// The admin side does not let us.
    #[error("{0}")]
    Refused(String),
}

impl Failure {
    /// The exit code.
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => FAILED,
            Self::Usage(_) => USAGE,
            Self::Config(_) => BAD_CONFIG,
            Self::NotFound(_) => NOT_FOUND,
            Self::Unreachable(_) => UNREACHABLE,
            Self::Refused(_) => REFUSED,
        }
    }

    /// An answer that this program does not understand.
    pub(super) fn not_understood(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!(
            "the admin side's answer to {what} is not understood ({error}): is it of another version \
             (`weir --version`), or do --admin and WEIR_ADMIN not name weir's admin.listen?"
        ))
    }
}
