//! Credentials for a server, which are never shown.

use std::borrow::Cow;
use std::fmt;

/// A value that must not be shown. It has no `Display` and no `Serialize`, and its `Debug` shows nothing,
/// not even a length.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps a value so that it cannot be shown.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(value.into())
    }

    /// Returns the bytes, for the code that passes them to whom they are meant for.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes as text, for protocols of text. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub fn expose_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How a client authenticates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Without credentials, as for public images.
    Anonymous,
    /// A user name and a password, or an access token as the password.
    Password {
        /// The user's name.
        user: String,
        /// The password or token.
        password: Secret,
    },
    /// A refresh token, which a registry's token service turns into access tokens.
    Identity(Secret),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let login = Login::Password {
            user: "me".to_owned(),
            password: Secret::new("hunter2"),
        };
        let shown = format!("{login:?} {:?}", Login::Identity(Secret::new("hunter2")));
        assert!(
            shown.contains("me") && !shown.contains("hunter2"),
            "{shown}"
        );
        assert_eq!(Secret::new("hunter2").expose(), b"hunter2");
        assert_eq!(Secret::new(vec![b'a', 0xff]).expose_text(), "a\u{fffd}");
    }
}
