//! Recognises credentials, which everybody who has an image can read.

/// Last words of variables' names that hold credentials.
const NAMES: [&str; 9] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "API_KEY",
    "APIKEY",
    "PRIVATE_KEY",
    "ACCESS_KEY",
];

/// How values begin that are credentials, and whose they are.
const VALUES: [(&str, &str); 11] = [
    ("hf_", "Hugging Face"),
    ("ghp_", "GitHub"),
    ("gho_", "GitHub"),
    ("ghs_", "GitHub"),
    ("github_pat_", "GitHub"),
    ("glpat-", "GitLab"),
    ("AKIA", "AWS"),
    ("sk-", "OpenAI"),
    ("nvapi-", "NVIDIA"),
    ("xoxb-", "Slack"),
    ("-----BEGIN", "a private key"),
];

/// Shortest value that a known beginning makes a credential.
const SHORTEST: usize = 16;

/// Returns why a variable seems to hold a credential. `None` if it does not.
pub(super) fn why(name: &str, value: &str) -> Option<String> {
    if value.len() >= SHORTEST
        && let Some((_, whose)) = VALUES.iter().find(|(start, _)| value.starts_with(start))
    {
        return Some(format!("its value looks like a credential ({whose})"));
    }
    if has_password(value) {
        return Some("its value is an address with a password".to_owned());
    }
    let upper = name.to_ascii_uppercase();
    let named = NAMES.iter().find(|word| {
        let before = upper.strip_suffix(**word);
        before.is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    })?;
    // `TOKEN: ""` and `TOKEN: /run/secrets/token` say where it comes from, not what it is.
    let place = value.is_empty() || value.starts_with('/');
    let switch = ["true", "false", "0", "1"].contains(&value.to_ascii_lowercase().as_str());
    (!place && !switch).then(|| format!("its name ends in `{named}`"))
}

/// Whether a value is a URL with a password in it.
fn has_password(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.and_then(|user| user.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn credentials_are_recognised_by_name_and_by_value() {
        for (name, value) in [
            ("HF_TOKEN", "abc"),
            ("db_password", "x"),
            ("SECRET", "x"),
            ("OPENAI_API_KEY", "x"),
            ("MODEL", "hf_abcdefghijklmnop"),
            ("DATABASE_URL", "postgres://u:hunter2@db/x"),
            ("KEY", "-----BEGIN PRIVATE KEY-----"),
        ] {
            assert!(why(name, value).is_some(), "{name}");
        }
    }

    #[test]
    fn what_only_looks_alike_is_let_through() {
        for (name, value) in [
            ("TOKENIZERS_PARALLELISM", "false"),
            ("MAX_TOKENS", "512"),
            ("HF_TOKEN", ""),
            ("DB_PASSWORD_FILE", "/run/secrets/db"),
            ("HF_TOKEN", "/run/secrets/hf"),
            ("USE_TOKEN", "true"),
            ("DATABASE_URL", "postgres://db:5432/x"),
            ("DATABASE_URL", "postgres://user@db/x"),
            ("STYLE", "sk-learn"),
            ("KEYBOARD", "de"),
            ("DONKEY", "x"),
        ] {
            assert_eq!(why(name, value), None, "{name}={value}");
        }
    }
}
