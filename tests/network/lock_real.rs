//! Locks against the real package index: small packages, each promise of `stackforge lock`.

use stackforge_resolve::{Bases, LockOptions, Locked, ResolveError, Upgrade};
use stackforge_stack::diag::codes;
use stackforge_stack::lock::{Lock, PinnedImage, PlatformLock, SourceLock};
use stackforge_stack::spec::Stack;
use stackforge_stack::target::Target;
use std::path::Path;

const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";

/// A base that nothing has to be asked about.
fn stack(platform: &str, python: &str, libraries: &str) -> Stack {
    let text = format!(
        "stack: t\nbase: example.invalid/base@sha256:{}\ntarget: {{ platform: {platform}, gpu: [sm_90] }}\npython: \"{python}\"\nlibraries:\n{libraries}",
        "ab".repeat(32)
    );
    stackforge_stack::spec::read("t.yaml", &text)
        .unwrap()
        .pattern
}

/// Recipes of a library that the index has as sdist only and of one that it has not at all.
fn overlay(dir: &Path) {
    let recipe = |name: &str, source: &str, version: &str, requires_dist: &str| {
        let text = format!(
            "schema: 1\nlibrary: {name}\ndistribution: {name}\nabout: a test\nimports: [{name}]\nwheels: none\nsources: [test]\nbuild:\n  source: {source}\n  requires: [\"setuptools<80\", wheel]\n  jobs: {{ variable: MAX_JOBS, memory_gb: 1.0, source: test }}\n  metadata: {{ '{version}': {{ requires_dist: [{requires_dist}] }} }}\n"
        );
        let path = dir.join("libraries").join(format!("{name}.yaml"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // A release of this hour is not yet on every copy of the index.
    recipe("docopt", "sdist", "*", "packaging==24.1");
    // Not a version that there is.
    recipe("wikipedia", "sdist", "0.0.1", "packaging==24.1");
    recipe(
        "stackforge-test-only",
        "\n    git: https://example.invalid/x\n    ref: v{version}",
        "*",
        "docopt",
    );
    // Of what the catalog describes, no much older release is taken.
    let flask = "schema: 1\nlibrary: flask\ndistribution: flask\nabout: a test\nimports: [flask]\nwheels: index\nsources: [test]\n";
    std::fs::write(dir.join("libraries/flask.yaml"), flask).unwrap();
}

fn lock(stack: &Stack, old: Option<&Lock>, upgrade: Upgrade) -> Result<Lock, ResolveError> {
    locked(stack, old, upgrade).map(|locked| locked.lock)
}

fn locked(stack: &Stack, old: Option<&Lock>, upgrade: Upgrade) -> Result<Locked, ResolveError> {
    let dir = tempfile::tempdir().unwrap();
    overlay(dir.path());
    let catalog = stackforge_stack::catalog::load(Some(dir.path())).unwrap();
    let target = Target::of(stack, &catalog).unwrap();
    let options = LockOptions {
        upgrade,
        upgrade_os: false,
        pull: false,
        // A uv that had to be fetched serves the next run too.
        cache: support::target_tmp().to_owned(),
        offline: false,
        debian_mirrors: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(stackforge_resolve::lock(
        stack,
        &catalog,
        &target,
        old,
        &options,
        Bases {
            digest_of: async |_: &str| None,
            root_of: async |_: &PinnedImage| panic!("no base is asked for"),
        },
        &mut |_: &str| {},
    ))
}

fn refused(stack: &Stack) -> Vec<(stackforge_stack::diag::Code, u32, String)> {
    let e = lock(stack, None, Upgrade::None).unwrap_err();
    assert_eq!(e.exit(stack), 1, "{e}");
    let report = e.report(stack);
    let line = |d: &stackforge_stack::diag::Diagnostic| d.span.map_or(0, |s| s.line);
    report
        .diagnostics
        .iter()
        .map(|d| (d.code, line(d), d.message.clone()))
        .collect()
}

fn version<'a>(platform: &'a PlatformLock, name: &str) -> &'a str {
    &platform.wheel(name).unwrap().version
}

#[test]
fn wheels_an_sdist_and_a_git_source_are_locked_without_a_host() {
    let libraries = format!(
        "  six: \"1.17.0\"\n  docopt: \"0.6.2\"\n  stackforge-test-only: {{ version: \"1.0\", ref: {REVISION} }}\n"
    );
    let stack = stack("linux/arm64", "3.12", &libraries);
    let locked = lock(&stack, None, Upgrade::None).unwrap();
    let platform = &locked.platforms[0];
    assert_eq!(
        platform.wheel("six").unwrap().file,
        "six-1.17.0-py2.py3-none-any.whl"
    );
    assert_eq!(platform.wheel("packaging").unwrap().via, ["docopt"]);
    let builds: Vec<_> = platform.builds.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(builds, ["docopt", "stackforge-test-only"]);
    let SourceLock::Sdist { file, .. } = &platform.builds[0].source else {
        panic!("docopt has an sdist only");
    };
    assert_eq!(file, "docopt-0.6.2.tar.gz");
    assert!(
        matches!(&platform.builds[1].source, SourceLock::Git { revision, .. } if revision == REVISION)
    );
    let requires: Vec<_> = platform.builds[0]
        .requires
        .iter()
        .map(|r| r.name.as_str())
        .collect();
    assert_eq!(requires, ["setuptools", "wheel"]);
    assert!(platform.tools[0].file.ends_with("aarch64.whl"));
    let text = locked.to_toml().unwrap();
    let urls = text.matches("://").count();
    assert_eq!(urls, 1, "the source repository's and no other: {text}");
    let again = lock(&stack, Some(&locked), Upgrade::None).unwrap();
    assert_eq!(again.to_toml().unwrap(), text);
}

#[test]
fn a_size_stays_as_it_is_locked_whatever_the_index_tells_this_time() {
    let stack = stack(
        "linux/amd64",
        "3.12",
        "  six: \"1.17.0\"\n  packaging: \"24.1\"\n  docopt: \"0.6.2\"\n",
    );
    let mut locked = lock(&stack, None, Upgrade::None).unwrap();
    let platform = &mut locked.platforms[0];
    platform.wheels[0].size = 0;
    platform.wheels[1].size = 7;
    platform.builds[0].requires[0].size = 0;
    let SourceLock::Sdist { size, .. } = &mut platform.builds[0].source else {
        panic!("docopt has an sdist only");
    };
    *size = 9;
    let again = lock(&stack, Some(&locked), Upgrade::None).unwrap();
    assert_eq!(again.to_toml().unwrap(), locked.to_toml().unwrap());
}

#[test]
fn versions_stay_until_they_are_upgraded() {
    let first = stack(
        "linux/amd64",
        "3.12",
        "  six: \"1.16.0\"\n  packaging: \"24.1\"\n",
    );
    let locked = lock(&first, None, Upgrade::None).unwrap();
    let open = stack(
        "linux/amd64",
        "3.12",
        "  six: \">=1.16\"\n  packaging: \">=24\"\n",
    );
    // The old lock as if it had been made from the open stack.
    let mut old = locked;
    for name in ["libraries.six", "libraries.packaging"] {
        let now = if name.ends_with("six") {
            ">=1.16"
        } else {
            ">=24"
        };
        old.inputs.insert(name.to_owned(), now.to_owned());
    }
    let kept = lock(&open, Some(&old), Upgrade::None).unwrap();
    assert_eq!(kept.platforms, old.platforms);
    let one = lock(&open, Some(&old), Upgrade::Libraries(vec!["six".into()])).unwrap();
    assert_ne!(version(&one.platforms[0], "six"), "1.16.0");
    assert_eq!(version(&one.platforms[0], "packaging"), "24.1");
    let all = lock(&open, Some(&old), Upgrade::All).unwrap();
    assert_ne!(version(&all.platforms[0], "packaging"), "24.1");
}

#[test]
fn a_conflict_names_both_sides_at_the_line() {
    let stack = stack(
        "linux/amd64",
        "3.9",
        "  jinja2: \"3.1.6\"\n  markupsafe: \"1.1.1\"\n",
    );
    let findings = refused(&stack);
    assert_eq!(findings.len(), 1);
    let (code, line, message) = &findings[0];
    assert_eq!((*code, *line), (codes::UNSATISFIABLE, 6), "{message}");
    assert!(
        message.contains("jinja2") && message.contains("markupsafe"),
        "{message}"
    );
}

#[test]
fn a_silent_downgrade_is_refused_with_what_causes_it() {
    let stack = stack(
        "linux/amd64",
        "3.9",
        "  flask: \">=1\"\n  markupsafe: \"1.1.1\"\n",
    );
    let findings = refused(&stack);
    let (code, line, message) = &findings[0];
    assert_eq!((*code, *line), (codes::SILENT_DOWNGRADE, 6), "{message}");
    assert!(message.contains("markupsafe"), "{message}");
}

#[test]
fn a_range_that_names_its_minor_releases_is_taken_at_its_word() {
    let stack = stack(
        "linux/amd64",
        "3.12",
        "  torch: \"2.11.*\"\n  torchvision: \">=0.20,<0.29\"\n",
    );
    // 0.26 is the one that requires torch 2.11.
    let locked = locked(&stack, None, Upgrade::None).unwrap();
    let torchvision = version(&locked.lock.platforms[0], "torchvision");
    assert!(torchvision.starts_with("0.26."), "{torchvision}");
    let said = "`torchvision` was resolved to 0.26.";
    assert!(
        locked.notes.iter().any(|note| note.starts_with(said)),
        "{:?}",
        locked.notes
    );
}

#[test]
fn a_range_follows_a_library_that_the_stack_holds_back() {
    // dash 2.14.0 requires Flask below 2.3.
    let stack = stack(
        "linux/amd64",
        "3.9",
        "  flask: \">=1\"\n  dash: \"2.14.0\"\n",
    );
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let flask = version(&lock.platforms[0], "flask");
    assert!(flask.starts_with("2.2."), "{flask}");
}

#[test]
fn an_older_release_of_an_ordinary_library_is_said() {
    let stack = stack(
        "linux/amd64",
        "3.9",
        "  jinja2: \">=2\"\n  markupsafe: \"1.1.1\"\n",
    );
    let locked = locked(&stack, None, Upgrade::None).unwrap();
    assert!(version(&locked.lock.platforms[0], "jinja2").starts_with("2."));
    let [note] = locked.notes.as_slice() else {
        panic!("{:?}", locked.notes);
    };
    let said = note.starts_with("`jinja2` was resolved to 2.") && note.contains("markupsafe");
    assert!(said, "{note}");
}

#[test]
fn of_distributions_with_the_same_modules_one_is_locked() {
    // What requires opencv-python-headless, and what requires opencv-python.
    let (headless, usual) = (
        "  albumentations: \"1.4.24\"\n",
        "  supervision: \"0.25.1\"\n",
    );
    for (more, kept) in [
        ("  opencv-python: auto\n", "opencv-python"),
        ("  opencv-contrib-python: auto\n", "opencv-contrib-python"),
        (usual, "opencv-python"),
    ] {
        let stack = stack("linux/amd64", "3.11", &format!("{headless}{more}"));
        let locked = locked(&stack, None, Upgrade::None).unwrap();
        let section = &locked.lock.platforms[0];
        let names = section.wheels.iter().map(|w| w.name.as_str());
        let found: Vec<&str> = names.filter(|n| n.starts_with("opencv")).collect();
        assert_eq!(found, [kept], "{more}");
        let note = format!("opencv-python-headless is left out: {kept} has its modules");
        let said = locked.notes.iter().any(|n| n.starts_with(&note));
        assert!(said, "{:?}", locked.notes);
        let again = locked_again(&stack, &locked.lock);
        assert_eq!(again, locked.lock);
    }
    // Who names both gets both.
    let both = "  opencv-python: auto\n  opencv-python-headless: auto\n";
    let locked = lock(&stack("linux/amd64", "3.11", both), None, Upgrade::None).unwrap();
    let wheels = locked.platforms[0].wheels.iter();
    assert_eq!(wheels.filter(|w| w.name.starts_with("opencv")).count(), 2);
}

fn locked_again(stack: &Stack, old: &Lock) -> Lock {
    lock(stack, Some(old), Upgrade::None).unwrap()
}

#[test]
fn auto_follows_the_stack_and_is_no_downgrade() {
    let stack = stack(
        "linux/amd64",
        "3.9",
        "  jinja2: auto\n  markupsafe: \"1.1.1\"\n",
    );
    let locked = lock(&stack, None, Upgrade::None).unwrap();
    assert!(version(&locked.platforms[0], "jinja2").starts_with("2."));
}

#[test]
fn a_torch_without_cuda_is_refused() {
    let stack = stack("linux/arm64", "3.12", "  torch: \"2.9.1\"\n");
    let findings = refused(&stack);
    let (code, line, message) = &findings[0];
    assert_eq!((*code, *line), (codes::CPU_ONLY_TORCH, 6), "{message}");
    assert!(message.contains("==2.9.1"), "{message}");
}

#[test]
fn a_version_that_its_recipe_does_not_describe_is_read_from_its_archive() {
    let stack = stack("linux/amd64", "3.11", "  wikipedia: \"1.4.0\"\n");
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let section = &lock.platforms[0];
    assert_eq!(section.build("wikipedia").unwrap().version, "1.4.0");
    let via = |name: &str| section.wheel(name).unwrap().via.join(" ");
    assert_eq!(via("beautifulsoup4"), "wikipedia");
    assert_eq!(via("requests"), "wikipedia");
    let again = self::lock(&stack, Some(&lock), Upgrade::None).unwrap();
    assert_eq!(again, lock);
}

#[test]
fn numpy_is_held_below_2_for_what_was_built_for_numpy_1() {
    let libraries = "  pandas: \"1.5.3\"\n  shapely: \"2.0.1\"\n";
    let numpy = |stack: &Stack| {
        let locked = locked(stack, None, Upgrade::None).unwrap();
        let section = &locked.lock.platforms[0];
        (
            section.wheel("numpy").unwrap().version.clone(),
            locked.notes,
        )
    };
    let (version, notes) = numpy(&stack("linux/amd64", "3.11", libraries));
    assert!(version.starts_with("1.26."), "{version}");
    let note = notes.join("\n");
    assert!(note.contains("pandas 1.5.3, shapely 2.0.1"), "{note}");
    // Who asks for numpy 2 gets it.
    let named = format!("{libraries}  numpy: \">=2\"\n");
    let (version, notes) = numpy(&stack("linux/amd64", "3.11", &named));
    assert!(version.starts_with("2."), "{version}");
    assert!(notes.is_empty(), "{notes:?}");
    // What was built for both gets the newest.
    let newer = "  pandas: \"2.2.3\"\n";
    let (version, _) = numpy(&stack("linux/arm64", "3.12", newer));
    assert!(version.starts_with("2."), "{version}");
}

#[test]
fn releases_that_came_after_a_distribution_and_break_it_are_held_back() {
    let hub = |libraries: &str| {
        let stack = stack("linux/amd64", "3.11", libraries);
        let lock = lock(&stack, None, Upgrade::None).unwrap();
        let hub = lock.platforms[0].wheel("huggingface-hub").unwrap();
        hub.version.clone()
    };
    let held = hub("  diffusers: \"0.25.0\"\n");
    assert!(held.starts_with("0.25."), "{held}");
    // Who asks for a newer one gets it.
    let asked = hub("  diffusers: \"0.25.0\"\n  huggingface-hub: \">=0.30,<1\"\n");
    assert!(!asked.starts_with("0.25."), "{asked}");
}

/// The numbers of a version.
fn release(version: &str) -> Vec<u32> {
    let parts = version.split('.');
    parts.map_while(|part| part.parse().ok()).collect()
}

#[test]
fn what_does_not_go_with_what_others_pin_becomes_older() {
    let version = |libraries: &str, name: &str| {
        let stack = stack("linux/amd64", "3.11", libraries);
        let lock = lock(&stack, None, Upgrade::None).unwrap();
        let wheel = lock.platforms[0].wheel(name).unwrap();
        release(&wheel.version)
    };
    // pyarrow 26 refuses numpy 1, and says so only when it is imported.
    let pinned = "  numpy: \"1.26.4\"\n  datasets: auto\n";
    assert!(version(pinned, "pyarrow") < release("26"));
    let pinned = "  huggingface-hub: \"0.20.2\"\n  peft: auto\n  torch: \"2.2.2\"\n";
    assert!(version(pinned, "peft") < release("0.13"));
    assert!(version(pinned, "accelerate") < release("0.32"));
    assert!(
        version(pinned, "numpy") < release("2"),
        "torch was built for 1"
    );
}

/// moviepy is looked at again and again until a release goes with the old numpy; the bounds come after that.
#[test]
fn bounds_hold_however_many_sources_were_looked_at() {
    let libraries = "  numpy: \"1.24.3\"\n  jax: \"0.4.13\"\n  chex: \"0.1.6\"\n  moviepy: \">=1.0.3\"\n  gym: \">=0.26\"\n  tensorflow-datasets: \">=4.9.2\"\n";
    let stack = stack("linux/amd64", "3.11", libraries);
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let jaxlib = lock.platforms[0].wheel("jaxlib").unwrap();
    assert_eq!(jaxlib.version, "0.4.13");
}

/// The newest has a wheel and requires something that has none, so the first answer is an older one.
#[test]
fn a_newer_release_that_does_not_import_is_not_taken() {
    let stack = stack("linux/amd64", "3.11", "  outlines: \"<0.1.0\"\n");
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let outlines = lock.platforms[0].wheel("outlines").unwrap();
    assert!(release(&outlines.version) < release("0.0.42"));
}

/// The bound of diffusers is met by an older transformers, though the stack names that: what does not import is worse.
#[test]
fn a_bound_that_nothing_else_meets_makes_older_what_the_stack_names() {
    let libraries = "  diffusers: \"0.25.0\"\n  transformers: \">=4.35.1\"\n";
    let locked = locked(
        &stack("linux/amd64", "3.11", libraries),
        None,
        Upgrade::None,
    )
    .unwrap();
    let section = &locked.lock.platforms[0];
    let version = |name: &str| release(&section.wheel(name).unwrap().version);
    assert!(version("huggingface-hub") < release("0.26"));
    assert!(version("transformers") < release("5"));
    let notes = locked.notes.join("\n");
    assert!(
        notes.contains("huggingface-hub<0.26 is taken for diffusers 0.25.0"),
        "{notes}"
    );
}

#[test]
fn what_an_index_has_is_said_where_nothing_meets_a_requirement() {
    let help = |libraries: &str| {
        let stack = stack("linux/amd64", "3.11", libraries);
        let report = lock(&stack, None, Upgrade::None)
            .unwrap_err()
            .report(&stack);
        report.diagnostics[0].help.clone().unwrap()
    };
    let older = help("  catboost: \"0.24.4\"\n");
    assert!(
        older.contains("has wheels for Python 3.11 on linux/amd64 from 1."),
        "{older}"
    );
    assert!(
        older.contains("the nearest to `==0.24.4` is `catboost: \"1."),
        "{older}"
    );
    let newer = help("  six: \">=99\"\n");
    assert!(
        newer.contains("the nearest to `>=99` is `six: \"1."),
        "{newer}"
    );
    // Its recipe compiles it from git, where no wheel will do and the version is known.
    let compiled = help("  torch: \">=99\"\n");
    assert!(
        compiled.contains("the nearest to `>=99` is `torch: \"2."),
        "{compiled}"
    );
    let another = help("  opencv: auto\n");
    assert!(
        another.contains("write `opencv-python-headless`"),
        "{another}"
    );
    let nothing = help("  stackforge-has-no-such-library: auto\n");
    assert!(nothing.contains("correct its name"), "{nothing}");
}

/// uv would take gruut 1, of which it knows nothing, for what gruut 2 requires has no wheels either.
#[test]
fn sources_behind_sources_are_found() {
    let stack = stack("linux/amd64", "3.11", "  gruut: auto\n");
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let section = &lock.platforms[0];
    assert!(section.build("gruut").unwrap().version.starts_with("2."));
    assert!(section.build("gruut-ipa").is_some() && section.build("gruut-lang-en").is_some());
}

/// Builders start from torch and what it requires, so what else the image has is locked for a build once more.
#[test]
fn a_source_that_builds_with_what_the_image_has_above_torch_gets_it() {
    let libraries = "  torch: \"2.1.2\"\n  setuptools: \"75.8.0\"\n  jieba: \"0.42.1\"\n";
    let stack = stack("linux/amd64", "3.11", libraries);
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let section = &lock.platforms[0];
    assert!(section.wheel("setuptools").unwrap().via.is_empty());
    let build = section.build("jieba").unwrap();
    let setuptools = build.requires.iter().find(|w| w.name == "setuptools");
    assert_eq!(setuptools.unwrap().version, "75.8.0");
}

#[test]
fn what_is_compiled_with_rust_and_has_no_wheel_is_refused_with_what_needs_it() {
    let stack = stack("linux/amd64", "3.11", "  transformers: \"4.19.2\"\n");
    let report = lock(&stack, None, Upgrade::None)
        .unwrap_err()
        .report(&stack);
    let finding = &report.diagnostics[0];
    assert_eq!(
        finding.code,
        stackforge_stack::diag::codes::NO_MATCHING_FILE
    );
    assert!(
        finding
            .message
            .starts_with("the source of `tokenizers` 0.12.1 cannot be used"),
        "{}",
        finding.message
    );
    assert!(
        finding.message.ends_with("(transformers needs it)"),
        "{}",
        finding.message
    );
}

/// tensorrt requires tensorrt-cu13, and that tensorrt-cu13-libs, which is a stub.
#[test]
fn a_stub_that_fetches_its_wheel_is_refused_with_what_needs_it() {
    let stack = stack("linux/amd64", "3.11", "  tensorrt: auto\n");
    let report = lock(&stack, None, Upgrade::None)
        .unwrap_err()
        .report(&stack);
    let message = &report.diagnostics[0].message;
    assert!(message.contains("only a stub"), "{message}");
    assert!(message.contains("needs it)"), "{message}");
}

/// uv's explanation names fugashi for releases of before this Python.
#[test]
fn what_has_a_wheel_is_not_built_because_older_releases_have_none() {
    let libraries = "  coqui-tts[languages]: \"0.27.5\"\n  torch: \"2.13.0\"\n";
    let stack = stack("linux/amd64", "3.11", libraries);
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let section = &lock.platforms[0];
    assert!(section.wheel("fugashi").is_some());
    assert!(section.build("gruut").is_some());
}

/// Each is a fact of the catalog; the versions are those that import.
#[test]
fn known_bounds_hold() {
    let libraries = "  flask: \"1.1.2\"\n  sentence-transformers: \"2.2.2\"\n  torch: \"2.1.2\"\n  librosa: \"0.9.2\"\n";
    let stack = stack("linux/amd64", "3.11", libraries);
    let lock = lock(&stack, None, Upgrade::None).unwrap();
    let version = |name: &str| {
        let section = &lock.platforms[0];
        let wheel = section.wheel(name).map(|w| &w.version);
        let version = wheel.or(section.build(name).map(|b| &b.version));
        version.unwrap().clone()
    };
    let below = [
        ("werkzeug", "3"),
        ("jinja2", "3.1"),
        ("itsdangerous", "2.1"),
        ("huggingface-hub", "0.26"),
        ("setuptools", "81"),
    ];
    for (name, bound) in below {
        let found = version(name);
        assert!(release(&found) < release(bound), "{name} {found}");
    }
}

#[test]
fn what_is_imported_and_not_required_is_added() {
    let stack = stack("linux/amd64", "3.11", "  pyopenjtalk-prebuilt: \"0.3.0\"\n");
    let first = locked(&stack, None, Upgrade::None).unwrap();
    let wheels = &first.lock.platforms[0].wheels;
    let setuptools = wheels.iter().find(|w| w.name == "setuptools").unwrap();
    let major: u32 = setuptools
        .version
        .split('.')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // Later ones do not have pkg_resources.
    assert!(major < 82, "{setuptools:?}");
    assert_eq!(setuptools.via, ["pyopenjtalk-prebuilt"]);
    let note = "setuptools<81 is taken: pyopenjtalk-prebuilt imports pkg_resources and does not require it";
    assert!(first.notes.iter().any(|n| n == note), "{:?}", first.notes);
    let again = locked(&stack, Some(&first.lock), Upgrade::None).unwrap();
    assert_eq!(again.lock, first.lock);
}

#[test]
fn what_python_no_longer_has_is_added() {
    let libraries = "  webob: \"1.8.7\"\n  tweepy: \"4.14.0\"\n  speechrecognition: \"3.10.0\"\n";
    let lock = |python| {
        locked(
            &stack("linux/amd64", python, libraries),
            None,
            Upgrade::None,
        )
        .unwrap()
    };
    let brought = [
        "audioop-lts",
        "legacy-cgi",
        "standard-aifc",
        "standard-imghdr",
    ];
    let of = |locked: &Locked| -> Vec<String> {
        let wheels = locked.lock.platforms[0].wheels.iter();
        let names = wheels.map(|wheel| wheel.name.clone());
        names
            .filter(|name| brought.contains(&name.as_str()))
            .collect()
    };
    let new = lock("3.13");
    assert_eq!(of(&new), brought);
    let note = "legacy-cgi is taken: webob imports cgi and does not require it";
    assert!(new.notes.iter().any(|n| n == note), "{:?}", new.notes);
    // Python 3.11 has them.
    let old = lock("3.11");
    assert!(of(&old).is_empty() && !old.notes.iter().any(|n| n.contains("imports")));
}
