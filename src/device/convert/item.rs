//! A value that was found in a foreign file, with its place, or a note of why the stack does not take it.

/// A value with the place that it comes from: `FILE:LINE`, or in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why<T> {
    pub value: T,
    pub at: String,
}

/// Something that the stack takes, or a remark at its place.
#[derive(Debug, Clone)]
pub enum Item<T> {
    Take(T),
    Note(Note),
}

/// What a stack cannot take over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its place in the file.
    pub at: String,
    /// The text there.
    pub text: String,
    /// Why the stack does not have it, and what to do; empty if that goes without saying.
    pub why: String,
}

impl Note {
    pub fn new(at: &str, text: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            at: at.to_owned(),
            text: text.into(),
            why: why.into(),
        }
    }
}

/// An operating system of a base image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Os {
    pub id: &'static str,
    /// The version, or the codename.
    pub release: String,
}
