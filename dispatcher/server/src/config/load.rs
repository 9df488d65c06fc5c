//! Reads a configuration: file or default, environment and flags over it, then all checks.

use std::path::{Path, PathBuf};

use weir_core::Policy;

use super::{Config, Problems, RawConfig, RawPolicy, suggest::with_suggestion};

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
    #[error("{}:\n{problems}", .file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problems: Problems,
    },
}

impl Origin {
    /// The raw configuration with everything that overrides it.
    ///
    /// # Errors
    /// When the file cannot be read or is not understood.
    pub fn raw(&self) -> Result<RawConfig, ConfigError> {
        let text = match &self.file {
            None => DEFAULT_FILE.to_owned(),
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| ConfigError::Unreadable { file: file.clone(), error })?,
        };
        let mut raw = parse(&text).map_err(|problems| self.wrong(problems))?;
        raw.listen = self.listen.clone().unwrap_or(raw.listen);
        raw.admin.listen = self.admin_listen.clone().unwrap_or(raw.admin.listen);
        if let Some(policy) = self.policy {
            raw.pools.iter_mut().for_each(|pool| pool.policy = RawPolicy::Preset(policy));
        }
        Ok(raw)
    }

    /// The configuration.
    ///
    /// # Errors
    /// When the file cannot be read, is not understood, or any value cannot be used.
    pub fn load(&self) -> Result<Config, ConfigError> {
        Config::check(&self.raw()?).map_err(|problems| self.wrong(problems))
    }

    fn wrong(&self, problems: Problems) -> ConfigError {
        let file = self.file.as_deref().unwrap_or(Path::new("built-in configuration"));
        ConfigError::Wrong { file: file.to_owned(), problems }
    }
}

/// Reads YAML. The message names the key and the line.
///
/// # Errors
/// The first thing that is not understood.
pub fn parse(text: &str) -> Result<RawConfig, Problems> {
    serde_yaml_ng::from_str(text).map_err(|error| with_suggestion(&error.to_string()).into())
}
