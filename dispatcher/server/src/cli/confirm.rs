//! Asking before a change that is felt by many.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use super::failure::Failure;

/// Returns when `yes` was given or a person says so.
///
/// # Errors
/// When they do not, or nobody can be asked.
pub(super) fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "this would {what}; without a terminal to ask, give --yes"
        )));
    }
    let mut answer = String::new();
    // Whom the question does not reach has not agreed.
    let asked = write!(std::io::stderr(), "{what}? [y/N] ");
    match asked.and_then(|()| std::io::stdin().lock().read_line(&mut answer)) {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        Ok(_) => Err(Failure::Failed("nothing was changed".to_owned())),
        Err(error) => Err(Failure::Failed(format!("cannot ask: {error}; nothing was changed"))),
    }
}
