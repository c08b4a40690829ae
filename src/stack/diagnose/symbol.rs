//! Demangles C++ names.
//!
//! In: text that a pattern captured from a log. Out: the same text, or the demangled name if it is a mangled
//! one, shortened. It never exceeds [`LONGEST`]: a mangled name can expand to gigabytes.

use cpp_demangle::{DemangleOptions, DemangleWrite, Symbol};
use std::fmt;

/// Longest name that is shown, in bytes.
const LONGEST: usize = 160;

pub fn readable(text: &str) -> String {
    if !text.starts_with("_Z") {
        return text.to_owned();
    }
    let Ok(symbol) = Symbol::new(text) else {
        return text.to_owned();
    };
    let mut out = Bounded(String::new());
    let whole = symbol.structured_demangle(&mut out, &DemangleOptions::default());
    let name = out.0.replace(
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
        "std::__cxx11::string",
    );
    if whole.is_ok() && name.len() <= LONGEST {
        return name;
    }
    match name.char_indices().nth(LONGEST) {
        _ if name.is_empty() => text.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
        None => format!("{name}…"),
    }
}

struct Bounded(String);

impl DemangleWrite for Bounded {
    fn write_string(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > 8 * LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_demangled() {
        assert_eq!(
            readable("_ZN3c105ErrorC1ENS_14SourceLocationESs"),
            "c10::Error::Error(c10::SourceLocation, std::string)"
        );
        assert_eq!(
            readable(
                "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
            ),
            "c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::__cxx11::string const&)"
        );
        assert_eq!(readable("cublasLtCreate"), "cublasLtCreate");
        assert_eq!(readable("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn a_name_that_unfolds_is_cut() {
        let mut bomb = String::from("_Z1fSt4pairIiiES_IS0_S0_E");
        for n in 1..34 {
            let s = char::from_digit(n, 36).unwrap().to_ascii_uppercase();
            bomb += &format!("S_IS{s}_S{s}_E");
        }
        assert!(readable(&bomb).len() <= 2 * LONGEST.max(bomb.len()));
    }

    proptest! {
        #[test]
        fn any_text_is_readable(text in "_Z[A-Za-z0-9_]{0,80}") {
            prop_assert!(readable(&text).len() <= 4 * LONGEST);
        }
    }
}
