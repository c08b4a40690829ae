//! Parses a wheel's local version label: `cu126`, `cpu`, `cu12torch2.8cxx11abiTRUE`.

/// CUDA's major version, and its minor version if the label has one.
pub type Cuda = (u32, Option<u32>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    pub cuda: Option<Cuda>,
    pub cpu: bool,
    /// Major and minor version of the torch that it was built against.
    pub torch: Option<(u64, u64)>,
    pub cxx11_abi: Option<bool>,
}

impl Label {
    /// Parses the known parts of a label and skips the others.
    pub fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let mut label = Self {
            cpu: text == "cpu" || text.starts_with("cpu."),
            ..Self::default()
        };
        if let Some(digits) = after(&text, "cu").map(number)
            && digits.len() >= 2
        {
            let (major, minor) = digits.split_at(2);
            label.cuda = major
                .parse()
                .ok()
                .filter(|m| (9..=99).contains(m))
                .map(|major| (major, minor.parse().ok()));
        }
        if let Some(rest) = after(&text, "torch") {
            let major = number(rest);
            let minor = number(rest[major.len()..].strip_prefix('.').unwrap_or(""));
            label.torch = major.parse().ok().zip(minor.parse().ok());
        }
        label.cxx11_abi = match after(&text, "cxx11abi") {
            Some(rest) if rest.starts_with("true") => Some(true),
            Some(rest) if rest.starts_with("false") => Some(false),
            _ => None,
        };
        label
    }
}

fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.find(word).map(|at| &text[at + word.len()..])
}

/// Returns the digits at the start.
fn number(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_field_are_understood() {
        assert_eq!(Label::of("cu126").cuda, Some((12, Some(6))));
        assert_eq!(Label::of("cu118").cuda, Some((11, Some(8))));
        assert_eq!(Label::of("cu12").cuda, Some((12, None)));
        assert!(Label::of("cpu").cpu);
        let flash = Label::of("cu12torch2.8cxx11abiTRUE");
        assert_eq!(flash.cuda, Some((12, None)));
        assert_eq!(flash.torch, Some((2, 8)));
        assert_eq!(flash.cxx11_abi, Some(true));
        assert_eq!(Label::of("cu13torch2.10cxx11abiFALSE").torch, Some((2, 10)));
        assert_eq!(Label::of("cxx11abifalse").cxx11_abi, Some(false));
        for none in ["", "git1a2b3c", "acme.2", "cu", "cu1", "torch"] {
            assert_eq!(Label::of(none), Label::default(), "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_label_panics(text in "\\PC{0,40}") {
            let _ = Label::of(&text);
        }
    }
}
