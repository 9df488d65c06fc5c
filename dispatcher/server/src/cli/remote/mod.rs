//! The admin side of a running dispatcher, as a client sees it: where it is, the token, one call.
//!
//! # Layout
//! - [`address`]: what `--admin` says
//! - [`http`]: one call on a connection of its own
//! - [`lead`]: what another dispatcher decides
//! - [`path`]: paths and queries of the API
//! - [`refusal`]: an error answer, as a failure that says what to do

mod address;
mod http;
mod lead;
pub(super) mod path;
mod refusal;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use serde_json::Value;

pub(super) use self::http::Events;
use self::{address::Address, http::Caller, lead::Notice};
use super::failure::Failure;
use crate::tls::{RawPodsTls, Secure, Trust};

/// The token, for those who do not keep it in a file. Not a flag: arguments show in the process list.
const TOKEN_VARIABLE: &str = "WEIR_ADMIN_TOKEN";

/// Where the admin side is, and how it lets us in.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Admin side")]
pub(super) struct RemoteArgs {
    /// Address of the admin listener: HOST:PORT, or a URL with http:// or https://
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "WEIR_ADMIN",
        default_value = "http://127.0.0.1:8081",
        global = true
    )]
    admin: String,
    /// File with authorities, PEM, of one of which the certificate of an admin side at https:// is; without it those of this machine
    #[arg(long, value_name = "FILE", env = "WEIR_ADMIN_CA", global = true)]
    admin_ca: Option<PathBuf>,
    /// File with the bearer token; without it the variable WEIR_ADMIN_TOKEN, or none
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

/// A client of the admin side.
#[derive(Debug)]
pub(super) struct Admin {
    caller: Caller,
}

impl Admin {
    /// The client that the arguments and the environment describe. Connects to nothing yet.
    ///
    /// # Errors
    /// When the address or the token cannot be used.
    pub(super) fn new(args: &RemoteArgs) -> Result<Self, Failure> {
        let address = Address::parse(&args.admin)?;
        let secure = secure(&address, args.admin_ca.as_deref())?;
        let token = match &args.token_file {
            Some(file) => Some(read_token(file)?),
            None => std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.trim().is_empty()),
        };
        let token = token.map(|token| token.trim().to_owned());
        Ok(Self { caller: Caller::new((address, secure), token)? })
    }

    /// The same for a board, which shows by itself who decides.
    pub(super) fn for_a_board(mut self) -> Self {
        self.caller.notice = Notice::silent();
        self
    }

    /// The address, for people.
    pub(super) fn address(&self) -> String {
        self.caller.address.to_string()
    }

    /// Reads.
    ///
    /// # Errors
    /// When there is no answer, or the answer is an error.
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.caller.call("GET", path, None)
    }

    /// Opens a stream of events.
    ///
    /// # Errors
    /// When there is no answer, or the answer is an error.
    pub(super) fn listen(&self, path: &str) -> Result<Events, Failure> {
        self.caller.listen(path)
    }

    /// The next event of a stream; `None` when none comes within `wait`.
    ///
    /// # Errors
    /// When the stream has ended.
    pub(super) fn next(
        &self,
        events: &mut Events,
        wait: Duration,
    ) -> Result<Option<Value>, Failure> {
        self.caller.next(events, wait)
    }

    /// Changes something.
    ///
    /// # Errors
    /// When there is no answer, or the answer is an error.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.caller.call("POST", path, Some(body))
    }
}

/// How an admin side at `https://` is spoken to.
fn secure(address: &Address, ca: Option<&Path>) -> Result<Option<Secure>, Failure> {
    if !address.sealed {
        return Ok(None);
    }
    let ca = ca.map(|ca| ca.display().to_string());
    let trust = Trust::new(RawPodsTls { ca, ..RawPodsTls::default() }, "admin side".to_owned());
    let trust = trust.map_err(|wrong| Failure::Usage(format!("--admin-{wrong}")))?;
    let secure = Arc::new(trust).at(&address.host);
    secure.map(Some).map_err(|why| Failure::Usage(format!("--admin: {why}")))
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("--token-file {}: {error}", file.display())))?;
    let token = text.trim();
    let usable = !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
    if usable {
        Ok(token.to_owned())
    } else {
        Err(Failure::Usage(format!("--token-file {}: must hold one token", file.display())))
    }
}

#[cfg(test)]
mod tests;
