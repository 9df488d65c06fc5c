//! Reads a configuration: file or default, environment and flags over it, then all checks.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use weir_core::Policy;

pub use super::parse::parse;
use super::{Config, Problems, RawConfig, RawPolicy, locate::Lines, problems::Problem};

/// config/weir.yaml, which a dispatcher without a file starts on.
pub const DEFAULT_FILE: &str = include_str!("../../../../config/weir.yaml");

/// Where the configuration comes from, and what overrides it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file; the default when `None`.
    pub file: Option<PathBuf>,
    /// Over the file's `listen`.
    pub listen: Option<String>,
    /// Over the file's `admin.listen`.
    pub admin_listen: Option<String>,
    /// Over the policy of every pool.
    pub policy: Option<Policy>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is read, and wrong.
    #[error("{}: {}", .file.display(), listed(.problems))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problems: Problems,
    },
}

impl ConfigError {
    /// What to do next, where that is not said by the problem itself.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { file, error } if error.kind() == ErrorKind::NotFound => {
                format!("; `weir check > {}` writes one to start from", file.display())
            }
            _ => String::new(),
        }
    }

    /// Everything that is wrong; a file that cannot be read is one problem.
    pub fn problems(self) -> Problems {
        match self {
            Self::Wrong { problems, .. } => problems,
            Self::Unreadable { .. } => {
                Problem { key: String::new(), line: None, message: self.to_string() }.into()
            }
        }
    }
}

/// How many there are, and each in a line of its own.
fn listed(problems: &Problems) -> String {
    let count = problems.all().len();
    let plural = if count == 1 { "" } else { "s" };
    let each = problems.all().iter().map(|problem| format!("\n  {problem}"));
    format!("{count} problem{plural}{}", each.collect::<String>())
}

impl Origin {
    /// The raw configuration with everything that overrides it.
    ///
    /// # Errors
    /// When the file cannot be read or is not understood.
    pub fn raw(&self) -> Result<RawConfig, ConfigError> {
        self.over(&self.text()?)
    }

    /// The configuration.
    ///
    /// # Errors
    /// When the file cannot be read, is not understood, or any value cannot be used.
    pub fn load(&self) -> Result<Config, ConfigError> {
        self.load_text(&self.text()?)
    }

    /// The same for who opens no connection, and may not read what they need.
    ///
    /// # Errors
    /// As [`Origin::load`].
    pub fn load_in_the_clear(&self) -> Result<Config, ConfigError> {
        let text = self.text()?;
        self.check(&text, &self.over(&text)?.in_the_clear())
    }

    /// What the file says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn text(&self) -> Result<String, ConfigError> {
        let Some(file) = &self.file else { return Ok(DEFAULT_FILE.to_owned()) };
        let unreadable = |error| ConfigError::Unreadable { file: file.clone(), error };
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        // Editors of other systems begin a file with a mark that is no part of what it says.
        Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
    }

    /// The configuration that this text is.
    ///
    /// # Errors
    /// When it is not understood or any value cannot be used.
    pub fn load_text(&self, text: &str) -> Result<Config, ConfigError> {
        self.check(text, &self.over(text)?)
    }

    fn check(&self, text: &str, raw: &RawConfig) -> Result<Config, ConfigError> {
        let wrong = |problems: Problems| {
            self.wrong(problems.located(&Lines::of(text), &self.said_elsewhere()))
        };
        Config::check(raw).map_err(wrong)
    }

    /// What a text says, and over it what the flags and the environment say.
    fn over(&self, text: &str) -> Result<RawConfig, ConfigError> {
        let mut raw = parse(text).map_err(|problems| self.wrong(problems))?;
        raw.listen = self.listen.clone().unwrap_or(raw.listen);
        raw.admin.listen = self.admin_listen.clone().unwrap_or(raw.admin.listen);
        if let Some(policy) = self.policy {
            raw.pools.iter_mut().for_each(|pool| pool.policy = RawPolicy::Preset(policy));
        }
        Ok(raw)
    }

    /// The keys that the file does not say, and who says them.
    fn said_elsewhere(&self) -> Vec<(&'static str, String)> {
        let said = |key: &'static str, over: &Option<String>, by: &str| {
            over.as_ref().map(|_| (key, by.to_owned()))
        };
        let listen = said("listen", &self.listen, "--listen or WEIR_LISTEN");
        let admin = said("admin.listen", &self.admin_listen, "--admin-listen or WEIR_ADMIN_LISTEN");
        listen.into_iter().chain(admin).collect()
    }

    fn wrong(&self, problems: Problems) -> ConfigError {
        let file = self.file.as_deref().unwrap_or(Path::new("built-in configuration"));
        ConfigError::Wrong { file: file.to_owned(), problems }
    }
}
