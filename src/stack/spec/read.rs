//! Parses text to a [`Stack`]: first the structure, up to the first fault, then every value, with all faults at
//! once.

use super::direct::{self, DirectFile};
use super::fault::{first_line, structural, widen};
use super::index::is_index;
use super::raw::{
    AttentionShape, From, Positioned, Publish, RawFrom, RawLibrary, RawStack, SharedCache,
};
use super::requirement::requirement;
use super::{
    At, FileKind, Library, LibraryName, LibraryOption, Stack, StackFile, Wanted, constraints,
};
use crate::diag::{Code, Diagnostic, Report, Source, Span, codes};
use crate::fix::Fix;
use pep440_rs::VersionSpecifier;
use stackforge_types::reference::{image_reference, repository};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Longest stack file, in bytes: far above any hand-written one, and harmless.
const MAX_BYTES: usize = 256 * 1024;

/// Reads a stack. `name` is the text's name in messages.
pub fn read(name: &str, text: &str) -> Result<StackFile, Report> {
    let source = Source {
        name: name.to_owned(),
        text: text.to_owned(),
        above: 0,
    };
    if text.len() > MAX_BYTES {
        let too_large = Diagnostic::error(
            codes::TOO_LARGE,
            format!(
                "the file has {} bytes, a stack has at most {MAX_BYTES}",
                text.len()
            ),
        );
        return Err(Report::new(
            Source {
                name: source.name,
                ..Source::default()
            },
            vec![too_large],
        ));
    }
    // First expand everything within the budget, which refuses a YAML bomb at any place.
    if let Err(error) = serde_saphyr::from_str_with_options::<serde_json::Value>(text, options()) {
        let diagnostic = structural(error.without_snippet(), text);
        if [codes::ALIAS_BOMB, codes::YAML_SYNTAX].contains(&diagnostic.code) {
            return Err(Report::new(source, vec![diagnostic]));
        }
    }
    let raw: RawStack = match serde_saphyr::from_str_with_options(text, options()) {
        Ok(raw) => raw,
        Err(error) => {
            let diagnostic = structural(error.without_snippet(), text);
            return Err(Report::new(source, vec![diagnostic]));
        }
    };
    let mut checker = Checker {
        diagnostics: Vec::new(),
        text,
    };
    match checker.stack(raw, &source) {
        Some(file) if checker.diagnostics.is_empty() => Ok(file),
        _ => Err(Report::new(source, checker.diagnostics)),
    }
}

fn options() -> serde_saphyr::Options {
    // Comments mean nothing here, and the parser refuses more than 96 in front of one value.
    serde_saphyr::options! {
        emit_comments: false,
        budget: serde_saphyr::budget! { max_events: 20_000, max_aliases: 50, max_anchors: 50, max_depth: 32 },
    }
}

fn editable() -> Diagnostic {
    Diagnostic::error(codes::EDITABLE, "an image takes no editable installs")
        .help("use `from: source` with `git` and `ref`: the library is then built into a wheel")
}

pub(super) struct Checker<'a> {
    pub(super) diagnostics: Vec<Diagnostic>,
    text: &'a str,
}

impl Checker<'_> {
    pub(super) fn push(&mut self, span: Span, d: Diagnostic) {
        self.diagnostics.push(d.at(widen(span, self.text)));
    }

    pub(super) fn parse<T: FromStr>(
        &mut self,
        spot: Positioned<String>,
        code: Code,
    ) -> Option<At<T>>
    where
        T::Err: std::fmt::Display,
    {
        let At { value, span } = spot.0;
        match value.parse() {
            Ok(value) => Some(At { value, span }),
            Err(e) => {
                self.push(span, Diagnostic::error(code, e.to_string()));
                None
            }
        }
    }

    fn stack(&mut self, raw: RawStack, source: &Source) -> Option<StackFile> {
        let stack = self.parse(raw.stack, codes::BAD_NAME);
        let base = raw.base.0;
        let matrix = self.matrix(raw.matrix, &base);
        let target = raw.target.0;
        let gpus = self.gpus(&target, &matrix);
        let platform = self.or_axis(
            ("target.platform", target.value.platform, target.span),
            matrix.platform.first(),
            codes::BAD_PLATFORM,
        );
        let python = self.or_axis(
            ("python", raw.python, Span::default()),
            matrix.python.first(),
            codes::BAD_PYTHON,
        );
        let asks = |app: &super::service::raw::RawApp| !app.requirements.0.is_empty();
        if raw.libraries.0.value.is_empty() && !raw.app.as_ref().is_some_and(asks) {
            self.push(
                raw.libraries.0.span,
                Diagnostic::error(codes::EMPTY_LIBRARIES, "`libraries` is empty")
                    .help("name at least one, `torch: \"2.13.*\"` for instance, or an app's `requirements`"),
            );
        }
        let libraries = self.libraries(raw.libraries.0.value);
        let packages = self.packages(raw.packages);
        let overrides = self.overrides(raw.overrides);
        let constraints = self.constraints(raw.constraints);
        let indexes = self.indexes(raw.indexes);
        self.attention(raw.validate.attention.as_ref());
        let app = self.app(raw.app);
        let image = self.image(raw.image);
        let checks = self.checks(raw.validate.imports, raw.validate.run);
        self.references(raw.publish.as_ref(), raw.cache.as_ref());
        let pattern = Stack {
            stack: stack?,
            variant: None,
            about: raw.about,
            base,
            platform: platform?,
            gpus,
            python: python?,
            isa: None,
            libraries,
            packages,
            overrides,
            constraints,
            constraint_files: Vec::new(),
            indexes,
            jit: raw.jit.unwrap_or(true),
            os_libraries: raw.os_libraries.unwrap_or(true),
            prune: raw.prune.unwrap_or(false),
            bytecode: raw.bytecode.unwrap_or(true),
            attention: raw.validate.attention,
            app,
            image,
            checks,
            publish: raw.publish,
            cache: raw.cache,
            source: source.clone(),
        };
        Some(StackFile { pattern, matrix })
    }

    fn packages(&mut self, all: Vec<Positioned<String>>) -> Vec<At<String>> {
        self.each(all, |s| {
            s.parse::<stackforge_types::OsPackage>()
                .map(|p| p.to_string())
                .map_err(|e| (codes::BAD_NAME, e.to_string()))
        })
    }

    fn overrides(&mut self, all: Vec<Positioned<String>>) -> Vec<At<String>> {
        let (dashed, plain): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|o| o.0.value.starts_with("-e") || o.0.value.starts_with("--editable"));
        for Positioned(At { span, .. }) in dashed {
            self.push(span, editable());
        }
        self.requirements(plain)
    }

    fn requirements(&mut self, all: Vec<Positioned<String>>) -> Vec<At<String>> {
        self.each(all, |s| {
            requirement(s).map(|_| s.to_owned()).map_err(|why| {
                let text = format!("`{}` is not a requirement: {why}", clip(s));
                (codes::BAD_REQUIREMENT, text)
            })
        })
    }

    fn constraints(&mut self, all: Vec<Positioned<String>>) -> Vec<At<String>> {
        let mut out = Vec::new();
        for entry in all {
            match constraints::entry(&entry) {
                Ok(()) => out.push(entry.0),
                Err(why) => {
                    let text = format!("`{}` is not a constraint: {why}", clip(&entry.0.value));
                    let fault = Diagnostic::error(codes::BAD_REQUIREMENT, text);
                    self.push(
                        entry.0.span,
                        fault.help("write `\"numpy<2.3\"`, or the path of a file of such lines"),
                    );
                }
            }
        }
        out
    }

    fn indexes(&mut self, all: Vec<Positioned<String>>) -> Vec<At<String>> {
        self.each(all, |s| {
            let fault = || {
                let text = format!(
                    "`{}` is not the URL of an index: those begin with https:// or http://",
                    clip(s)
                );
                (codes::BAD_VALUE, text)
            };
            is_index(s).then(|| s.to_owned()).ok_or_else(fault)
        })
    }

    fn attention(&mut self, asked: Option<&AttentionShape>) {
        if let Some(a) = asked {
            let limits = [
                ("batch", a.batch, 4096),
                ("heads", a.heads, 1024),
                ("seq", a.seq, 1 << 20),
                ("head_dim", a.head_dim, 1024),
            ];
            for (key, value, max) in limits {
                if value == 0 || value > max {
                    self.diagnostics.push(
                        Diagnostic::error(
                            codes::BAD_VALUE,
                            format!("`validate.attention.{key}` is {value}"),
                        )
                        .help(format!("it ranges from 1 to {max}")),
                    );
                }
            }
        }
    }

    fn references(&mut self, publish: Option<&Publish>, cache: Option<&SharedCache>) {
        if let Some(p) = publish
            && !image_reference(&p.repository)
        {
            self.diagnostics.push(Diagnostic::error(
                codes::BAD_REFERENCE,
                format!("`publish.repository` is `{}`", clip(&p.repository)),
            ));
        }
        if let Some(cache) = cache
            && !repository(&cache.registry)
        {
            self.diagnostics.push(
                Diagnostic::error(
                    codes::BAD_REFERENCE,
                    format!("`cache.registry` is `{}`", clip(&cache.registry)),
                )
                .help("it names a repository, `HOST/NAME`, without a tag or digest"),
            );
        }
    }

    fn from(&mut self, raw: RawFrom, span: Span) -> Option<From> {
        match raw {
            RawFrom::Auto => Some(From::Auto),
            RawFrom::Wheel => Some(From::Wheel),
            RawFrom::Source => Some(From::Source),
            RawFrom::Editable => {
                self.push(span, editable());
                None
            }
        }
    }

    fn each(
        &mut self,
        values: Vec<Positioned<String>>,
        check: impl Fn(&str) -> Result<String, (Code, String)>,
    ) -> Vec<At<String>> {
        let mut out = Vec::with_capacity(values.len());
        for Positioned(At { value, span }) in values {
            match check(&value) {
                Ok(value) => out.push(At { value, span }),
                Err((code, message)) => self.push(span, Diagnostic::error(code, message)),
            }
        }
        out
    }

    /// Reads the libraries, sorted by their normalized names.
    fn libraries(&mut self, raw: BTreeMap<Positioned<String>, RawLibrary>) -> Vec<Library> {
        let mut libraries: Vec<Library> = Vec::new();
        for (name, library) in raw {
            let written = name.0.value.clone();
            let Some(library) = self.library(name, library) else {
                continue;
            };
            let name = &library.name;
            if libraries.iter().any(|other| other.name.value == name.value) {
                let message = format!(
                    "`{}` is there twice: `{}` is the same",
                    name.value,
                    clip(&written)
                );
                let twice = Diagnostic::error(codes::BAD_NAME, message);
                self.push(
                    name.span,
                    twice.help("keep one of the lines, with the extras of both"),
                );
                continue;
            }
            libraries.push(library);
        }
        libraries.sort_by(|a, b| a.name.value.cmp(&b.name.value));
        libraries
    }

    fn library(&mut self, name: Positioned<String>, raw: RawLibrary) -> Option<Library> {
        let name_span = name.0.span;
        let (name, named_extras) = self.library_name(name);
        let mut body = raw.body;
        let mut version = raw.version.map(|Positioned(At { value, span })| {
            let span = if span.line > 0 {
                span
            } else {
                self.value_after(name_span, &value)
            };
            At { value, span }
        });
        if let Some(file) = version.take_if(|v| body.file.is_none() && direct::is_file(&v.value)) {
            body.file = Some(Positioned(file));
        }
        let file = match body.file.take() {
            Some(file) => {
                let span = file.0.span;
                let others = [
                    ("version", version.is_some()),
                    ("git", body.git.is_some()),
                    ("ref", body.git_ref.is_some()),
                    ("index", body.index.is_some()),
                ];
                self.alone(span, &others);
                Some((self.file(file.0, body.sha256.take())?, span))
            }
            None => None,
        };
        if let Some(Positioned(At { span, .. })) = body.sha256 {
            let text = "`sha256` is the digest of `file`, which is not there";
            self.push(
                span,
                Diagnostic::error(codes::BAD_VALUE, text).help("name the file too"),
            );
        }
        let mut from = self.from(body.from, name_span)?;
        let (version, version_span) = match (&file, version) {
            (Some((file, span)), _) => {
                from = self.library_from(file, from, *span)?;
                let exactly = VersionSpecifier::equals_version(file.kind.version().clone());
                (Wanted::Specifier(exactly.into()), *span)
            }
            (None, None) => (Wanted::Auto, name_span),
            (None, Some(At { value, span })) => (self.wanted(&value, span)?, span),
        };
        self.variables(body.env.keys());
        let extras = self.extras([named_extras, body.extras].concat());
        if let Some(Positioned(At { value: 0, span })) = body.jobs {
            self.push(
                span,
                Diagnostic::error(codes::BAD_VALUE, "`jobs` is 0").help("use 1 or more"),
            );
        }
        self.repository([("git", &body.git), ("ref", &body.git_ref)]);
        let options = body.options.into_iter().map(|(name, value)| {
            let Positioned(At { value, span }) = value;
            let value = At {
                value: value.0,
                span,
            };
            let name = name.0;
            LibraryOption { name, value }
        });
        let options = options.collect();
        let index = self.indexes(body.index.into_iter().collect()).pop();
        let plain = |all: Vec<At<String>>| all.into_iter().map(|item| item.value).collect();
        let build_packages = plain(self.packages(body.build_packages));
        let build_requires = plain(self.requirements(body.build_requires));
        Some(Library {
            name: name?,
            version,
            version_span,
            from,
            extras,
            env: body.env.into_iter().map(|(k, v)| (k.0.value, v)).collect(),
            jobs: body.jobs.map(|j| j.0.value),
            patches: body.patches,
            options,
            build_packages,
            build_requires,
            git: body.git.map(|g| g.0.value),
            git_ref: body.git_ref.map(|g| g.0.value),
            index: index.map(|i| i.value),
            file: file.map(|(file, _)| file),
        })
    }

    /// Reads the file that a library is taken from.
    fn file(
        &mut self,
        written: At<String>,
        sha256: Option<Positioned<String>>,
    ) -> Option<DirectFile> {
        let sha256 = sha256.map(|s| s.0.value);
        match DirectFile::parse(&written.value, sha256.as_deref()) {
            Ok(file) => Some(file),
            Err(fault) => {
                let help = fault.help();
                let fault = Diagnostic::error(codes::BAD_VALUE, fault.to_string());
                self.push(written.span, fault.help(help));
                None
            }
        }
    }

    /// Reports keys that have no meaning beside `file`.
    fn alone(&mut self, span: Span, others: &[(&str, bool)]) {
        for (key, _) in others.iter().filter(|(_, there)| *there) {
            let text = format!("`{key}` and `file` exclude each other");
            let fault = Diagnostic::error(codes::BAD_VALUE, text);
            self.push(
                span,
                fault.help("the file says what is installed: leave the other key out"),
            );
        }
    }

    /// Returns how a library of a file is installed: what the file is decides.
    fn library_from(&mut self, file: &DirectFile, from: From, span: Span) -> Option<From> {
        let (of_file, what) = match &file.kind {
            FileKind::Wheel(_) => (From::Wheel, "a wheel"),
            FileKind::Sdist(..) => (From::Source, "a source distribution"),
        };
        if from != From::Auto && from != of_file {
            let text = format!("`{}` is {what}, which `from` excludes", clip(&file.name));
            let fault = Diagnostic::error(codes::BAD_VALUE, text);
            self.push(span, fault.help("leave `from` out"));
            return None;
        }
        Some(of_file)
    }

    /// Splits `Ray[serve]` into the normalized name, as PEP 503 has it, and the extras.
    fn library_name(
        &mut self,
        name: Positioned<String>,
    ) -> (Option<At<LibraryName>>, Vec<Positioned<String>>) {
        let At { value, span } = name.0;
        let (name, extras) = match value.strip_suffix(']').and_then(|v| v.split_once('[')) {
            Some((name, extras)) => (name, extras.split(',').map(str::trim).collect()),
            None => (value.as_str(), Vec::new()),
        };
        let at = |text: String| Positioned(At { value: text, span });
        let extras = extras.into_iter().map(|e| at(e.to_owned())).collect();
        let name = pep508_rs::PackageName::from_str(name.trim_end())
            .map_or_else(|_| value.clone(), |name| name.to_string());
        (self.parse(at(name), codes::BAD_NAME), extras)
    }

    /// Returns each extra once, normalized.
    pub(super) fn extras(&mut self, extras: Vec<Positioned<String>>) -> Vec<String> {
        let extras = self.each(extras, |s| {
            pep508_rs::ExtraName::from_str(s)
                .map(|e| e.to_string())
                .map_err(|e| (codes::BAD_NAME, e.to_string()))
        });
        let mut once = Vec::new();
        for At { value, .. } in extras {
            if !once.contains(&value) {
                once.push(value);
            }
        }
        once
    }

    pub(super) fn variables<'a>(&mut self, names: impl Iterator<Item = &'a Positioned<String>>) {
        for key in names {
            let valid = !key.0.value.is_empty()
                && key
                    .0
                    .value
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !key.0.value.as_bytes()[0].is_ascii_digit();
            if !valid {
                self.push(
                    key.0.span,
                    Diagnostic::error(
                        codes::BAD_NAME,
                        format!(
                            "`{}` is not the name of an environment variable",
                            clip(&key.0.value)
                        ),
                    ),
                );
            }
        }
    }

    fn repository(&mut self, fields: [(&str, &Option<Positioned<String>>); 2]) {
        for (what, spot) in fields {
            let Some(Positioned(At { value, span })) = spot else {
                continue;
            };
            let plain = value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_./:@+~".contains(&b));
            let scheme =
                what == "ref" || value.starts_with("https://") || value.starts_with("ssh://");
            if !plain || !scheme || value.is_empty() || value.starts_with('-') {
                self.push(
                    *span,
                    Diagnostic::error(
                        codes::BAD_VALUE,
                        format!("`{}` is not a valid `{what}`", clip(value)),
                    )
                    .help("`git` is an https:// or ssh:// URL, `ref` a tag, branch or commit"),
                );
            }
        }
    }

    fn wanted(&mut self, value: &str, span: Span) -> Option<Wanted> {
        if value == "auto" {
            return Some(Wanted::Auto);
        }
        // A bare version means exactly that version.
        let text = if value.starts_with(|c: char| c.is_ascii_digit()) {
            format!("=={value}")
        } else {
            value.to_owned()
        };
        match pep440_rs::VersionSpecifiers::from_str(&text) {
            Ok(v) if !v.is_empty() => Some(Wanted::Specifier(v)),
            Ok(_) => {
                self.bad_specifier(value, span, "it is empty");
                None
            }
            Err(e) => {
                let why = e.to_string();
                self.bad_specifier(value, span, &first_line(&why));
                None
            }
        }
    }

    fn bad_specifier(&mut self, value: &str, span: Span, why: &str) {
        let finding = Diagnostic::error(
            codes::BAD_SPECIFIER,
            format!("`{}` is not a version specifier", clip(value)),
        );
        let finding = match other_notation(value) {
            Some(same) if same == "auto" => finding.help("write `auto`").fix(Fix::Replace {
                span,
                from: value.to_owned(),
                to: same,
            }),
            Some(same) => finding
                .help(format!("write `\"{same}\"`"))
                .fix(Fix::Replace {
                    span,
                    from: value.to_owned(),
                    to: same,
                }),
            None => finding.help("write `\"2.13.0\"`, `\"2.13.*\"`, `\">=0.32,<0.34\"` or `auto`"),
        };
        self.push(span, finding.label(clip(why)));
    }

    /// Returns the span of the scalar after a key. The deserializer has none for plain text in a value that may
    /// be text or a mapping.
    fn value_after(&self, key: Span, value: &str) -> Span {
        let from = (key.offset + key.len).min(self.text.len());
        let Some(at) = self.text.get(from..).and_then(|t| t.find(value)) else {
            return key;
        };
        let offset = from + at;
        let before = &self.text[..offset];
        Span {
            line: before.matches('\n').count() as u32 + 1,
            column: before.rfind('\n').map_or(offset, |n| offset - n - 1) as u32 + 1,
            offset,
            len: value.len(),
        }
    }
}

/// Returns how a stack writes what other tools write so: `latest`, `^2.13` (Poetry), `=2.13` (conda), `<3.x`.
fn other_notation(value: &str) -> Option<String> {
    if ["latest", "newest", "*", "any", "default"].contains(&value) {
        return Some("auto".to_owned());
    }
    let clauses: Option<Vec<String>> = value.split(',').map(|c| clause(c.trim())).collect();
    let same = clauses?.join(",");
    let read = pep440_rs::VersionSpecifiers::from_str(&same).ok()?;
    (!read.is_empty() && same != value).then_some(same)
}

/// Returns one clause as PEP 440 has it.
fn clause(text: &str) -> Option<String> {
    let at = text.find(|c: char| c.is_ascii_alphanumeric())?;
    let (operator, version) = (text[..at].trim(), text[at..].trim());
    let open = [".x", ".X", ".*"]
        .iter()
        .find_map(|end| version.strip_suffix(end));
    let parsed = pep440_rs::Version::from_str(open.unwrap_or(version)).ok()?;
    let parts = parsed.release();
    let after = |place: usize| {
        let mut next: Vec<String> = parts[..=place].iter().map(u64::to_string).collect();
        next[place] = (parts[place] + 1).to_string();
        next.join(".")
    };
    let last = parts.len() - 1;
    Some(match (operator, open.is_some()) {
        ("^", _) => {
            let fixed = parts.iter().position(|part| *part > 0)?;
            format!(">={parsed},<{}", after(fixed))
        }
        ("~", true) => format!("=={parsed}.*"),
        ("~", false) if last > 1 => format!("~={parsed}"),
        ("~", false) => format!("=={parsed}.*"),
        ("" | "=" | "==", true) => format!("=={parsed}.*"),
        ("=", false) => format!("=={parsed}"),
        ("<=", true) => format!("<{}", after(last)),
        (">", true) => format!(">={}", after(last)),
        ("<" | ">=", true) => format!("{operator}{parsed}"),
        (_, false) => format!("{operator}{version}"),
        _ => return None,
    })
}

pub(crate) fn clip(s: &str) -> String {
    let mut out: String = s.chars().take(80).collect();
    if s.chars().count() > 80 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "stack: s\nbase: b\ntarget: { platform: linux/amd64, gpu: [h100] }\npython: \"3.12\"\nlibraries:\n  torch: \"2.13.*\"\n  x: { version: auto, from: source, jobs: 2 }\n";

    #[test]
    fn specifiers_of_other_tools_have_an_equal_here() {
        for (theirs, ours) in [
            ("latest", "auto"),
            ("^2.13", ">=2.13,<3"),
            ("^0.4.1", ">=0.4.1,<0.5"),
            ("~1.2.3", "~=1.2.3"),
            ("~1.2", "==1.2.*"),
            ("=2.13", "==2.13"),
            ("2.x", "==2.*"),
            ("<6.x,>=5.0.0", "<6,>=5.0.0"),
            ("!=1.4.0,<1.x,>1.1", "!=1.4.0,<1,>1.1"),
            ("<=3.x", "<4"),
            (">1.2.*", ">=1.3"),
        ] {
            assert_eq!(other_notation(theirs).as_deref(), Some(ours), "{theirs}");
        }
        for nonsense in ["", "x", "<", "^", "1.2 || 1.3", "!=1.x", ">=a.x", "~~1"] {
            assert_eq!(other_notation(nonsense), None, "{nonsense}");
        }
    }

    proptest! {
        #[test]
        fn what_is_proposed_is_a_specifier(value in "(\\^|~|=|<|>|!|,| |[0-9]|\\.|x|\\*|a|\\PC){0,20}") {
            if let Some(same) = other_notation(&value).filter(|same| same != "auto") {
                prop_assert!(pep440_rs::VersionSpecifiers::from_str(&same).is_ok_and(|s| !s.is_empty()));
            }
        }
    }

    #[test]
    fn a_stack_is_read_with_its_places() {
        let stack = read("s.yaml", GOOD).unwrap().pattern;
        assert_eq!(stack.libraries.len(), 2);
        let torch = stack.library("torch").unwrap();
        let span = torch.version_span;
        assert_eq!(
            (span.line, &GOOD[span.offset..span.offset + span.len]),
            (6, "2.13.*")
        );
        assert_eq!(stack.library("x").unwrap().jobs, Some(2));
        assert!(stack.jit);
    }

    #[test]
    fn hundreds_of_comments_in_front_of_a_value_are_read() {
        let comments = "  # left out\n".repeat(300);
        let text = GOOD.replace("libraries:\n", &format!("libraries:\n{comments}"));
        assert!(read("s.yaml", &text).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|\n|: |- |\\{|\\[|&a|\\*a|\"){0,80}") {
            let _ = read("s.yaml", &text);
        }

        #[test]
        fn no_damage_to_a_stack_panics(at in 0usize..GOOD.len(), len in 0usize..12, with in "\\PC{0,6}") {
            if let (Some(head), Some(tail)) = (GOOD.get(..at), GOOD.get((at + len).min(GOOD.len())..)) {
                let text = format!("{head}{with}{tail}");
                if let Err(report) = read("s.yaml", &text) {
                    let shown = crate::diag::render(&report, false);
                    prop_assert!(shown.as_str().contains("SF00"), "{}", shown.as_str());
                }
            }
        }
    }
}
