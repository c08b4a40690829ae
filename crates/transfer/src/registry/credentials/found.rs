//! What was found: a login, and where.

use stackforge_types::login::Login;

/// A login and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// [`Login::Anonymous`] if nothing was found.
    pub login: Login,
    /// For messages: the user and where the credentials were found, or where they were looked for.
    pub whence: String,
}
