//! One cause, one code: an error keeps its code and its exit status, whatever wraps it.

use stackforge_audit::TreeError;
use stackforge_audit::prune::PruneError;
use stackforge_build::BuildError;
use stackforge_build::emit::EmitError;
use stackforge_build::render::RenderError;
use stackforge_debian::KeyringError;
use stackforge_debian::archive::ArchiveError;
use stackforge_debian::fetch::FetchDebsError as DebError;
use stackforge_debian::finish::FinishError;
use stackforge_debian::mirror::MirrorError;
use stackforge_debian::resolve::{ResolveError as DebianError, UnknownPackage};
use stackforge_debian::rootfs::RootfsError;
use stackforge_deploy::DeployError;
use stackforge_device::convert::ConvertError;
use stackforge_distribute::evidence::{EvidenceError, KeyError};
use stackforge_distribute::publish::PublishError;
use stackforge_distribute::pull::PullError;
use stackforge_engine::EngineError;
use stackforge_image::assemble::AssembleError;
use stackforge_image::layer::LayerError;
use stackforge_image::oci::OciError;
use stackforge_image::store::StoreError;
use stackforge_image::unpack::UnpackError;
use stackforge_plan::PlanError;
use stackforge_plan::project::ProjectError;
use stackforge_resolve::{OsPackagesError, PackageError};
use stackforge_run::RunError;
use stackforge_sandbox::SandboxError;
use stackforge_stack::catalog::CatalogError;
use stackforge_stack::config::ConfigError;
use stackforge_stack::diag::codes::{self, Code, TABLE};
use stackforge_stack::diag::{Explained, chain};
use stackforge_transfer::fetch::FetchError;
use stackforge_transfer::registry::RegistryError;
use stackforge_types::reference::{BadReference, Reference};
use stackforge_update::UpdateError;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use support::project;

/// Each way in which an error reaches the command line, with the code that it has there.
fn codes_and_texts<L: Explained + 'static>(
    make: impl Fn() -> L,
    wraps: &[&dyn Fn(L) -> Box<dyn Explained>],
) -> Vec<(Code, String)> {
    let own: Box<dyn Explained> = Box::new(make());
    std::iter::once(own)
        .chain(wraps.iter().map(|wrap| wrap(make())))
        .map(|error| (error.code(), chain(error.as_ref())))
        .collect()
}

fn one_code<L: Explained + 'static>(
    code: Code,
    make: impl Fn() -> L,
    wraps: &[&dyn Fn(L) -> Box<dyn Explained>],
) {
    for (found, text) in codes_and_texts(make, wraps) {
        assert_eq!(found, code, "{text}");
    }
}

fn full() -> Error {
    ErrorKind::StorageFull.into()
}

fn broken() -> Error {
    ErrorKind::PermissionDenied.into()
}

#[test]
fn a_registrys_error_has_one_code_in_every_command() {
    let wraps: [&dyn Fn(RegistryError) -> Box<dyn Explained>; 5] = [
        &|e| Box::new(PullError::from(e)),
        &|e| Box::new(PublishError::from(e)),
        &|e| Box::new(EvidenceError::from(e)),
        &|e| Box::new(BuildError::from(PullError::from(e))),
        &|e| Box::new(OsPackagesError::Base(Box::new(PullError::from(e)))),
    ];
    let file = |source: fn() -> Error| {
        move || RegistryError::File {
            doing: "writing",
            path: PathBuf::from("part"),
            source: source(),
        }
    };
    one_code(codes::NO_SPACE, file(full), &wraps);
    one_code(codes::STORE_IO, file(broken), &wraps);
    let missing = || RegistryError::Missing {
        host: "h".to_owned(),
        what: "blob".to_owned(),
        errors: Default::default(),
    };
    one_code(codes::NO_SUCH_IMAGE, missing, &wraps);
    let limited = || RegistryError::Limited {
        host: "h".to_owned(),
        doing: "reading".to_owned(),
        after: None,
    };
    one_code(codes::NETWORK, limited, &wraps);
}

#[test]
fn an_engines_error_has_one_code_in_every_command() {
    let wraps: [&dyn Fn(EngineError) -> Box<dyn Explained>; 3] = [
        &|e| Box::new(PullError::from(e)),
        &|e| Box::new(BuildError::from(e)),
        &|e| Box::new(UpdateError::from(e)),
    ];
    let doing = || "loading".to_owned();
    one_code(
        codes::NO_SPACE,
        || EngineError::NoSpace { doing: doing() },
        &wraps,
    );
    let gone = || EngineError::Gone {
        doing: doing(),
        source: None,
    };
    one_code(codes::ENGINE_GONE, gone, &wraps);
    let cancelled = || EngineError::Cancelled { doing: doing() };
    one_code(codes::INTERRUPTED, cancelled, &wraps);
    let context = || EngineError::Context {
        path: PathBuf::from("f"),
        source: full(),
    };
    one_code(codes::NO_SPACE, context, &wraps);
}

#[test]
fn an_images_error_has_one_code_in_every_command() {
    let wraps: [&dyn Fn(OciError) -> Box<dyn Explained>; 5] = [
        &|e| Box::new(PullError::from(e)),
        &|e| Box::new(PublishError::from(e)),
        &|e| Box::new(EvidenceError::from(e)),
        &|e| Box::new(BuildError::from(e)),
        &|e| Box::new(UpdateError::from(e)),
    ];
    let unknown = || OciError::Unknown(PathBuf::from("x"));
    one_code(codes::NO_SUCH_IMAGE, unknown, &wraps);
    let missing = || OciError::Missing("blob".to_owned());
    one_code(codes::IMAGE_UNREADABLE, missing, &wraps);
    let read = || OciError::Read {
        path: PathBuf::from("x"),
        source: broken(),
    };
    one_code(codes::UNREADABLE, read, &wraps);
}

#[test]
fn a_full_disk_is_called_that_wherever_it_is_met() {
    let write = |source: Error| UnpackError::Write {
        path: "f".to_owned(),
        source,
    };
    let errors: Vec<Box<dyn Explained>> = vec![
        Box::new(write(full())),
        Box::new(BuildError::Unpack(write(full()))),
        Box::new(PullError::Unpack {
            path: PathBuf::from("d"),
            source: write(full()),
        }),
        Box::new(BuildError::Layer(LayerError::Write(full()))),
        Box::new(PullError::Assemble(AssembleError::Io {
            doing: "write",
            path: PathBuf::from("f"),
            source: full(),
        })),
        Box::new(BuildError::Io {
            doing: "write",
            path: PathBuf::from("f"),
            source: full(),
        }),
        Box::new(StoreError::at("write", &PathBuf::from("f"), full())),
        Box::new(UpdateError::io("write", &PathBuf::from("f"), full())),
        Box::new(PackageError::Fetch(FetchError::Full {
            path: PathBuf::from("f"),
            kept: 0,
            source: full(),
        })),
    ];
    for error in errors {
        let text = chain(error.as_ref());
        assert_eq!(error.code(), codes::NO_SPACE, "{text}");
        assert_eq!(error.exit(), 3, "{text}");
        assert!(!error.help().is_empty(), "{text}");
    }
}

#[test]
fn other_causes_keep_their_code_too() {
    let mirror = || MirrorError::Missing {
        archive: "debian".to_owned(),
    };
    let wraps: [&dyn Fn(MirrorError) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(BuildError::from(e)), &|e| {
            Box::new(OsPackagesError::from(e))
        }];
    one_code(codes::MIRROR_UNKNOWN, mirror, &wraps);
    let key = || KeyError::NoPem {
        name: "k".to_owned(),
    };
    let wraps: [&dyn Fn(KeyError) -> Box<dyn Explained>; 3] = [
        &|e| Box::new(EvidenceError::from(e)),
        &|e| Box::new(PullError::from(EvidenceError::from(e))),
        &|e| Box::new(UpdateError::from(e)),
    ];
    one_code(codes::KEY_UNUSABLE, key, &wraps);
    let lost = || SandboxError::Lost;
    let wraps: [&dyn Fn(SandboxError) -> Box<dyn Explained>; 1] =
        [&|e| Box::new(BuildError::from(e))];
    one_code(codes::SANDBOX_FAILED, lost, &wraps);
}

#[test]
fn a_downloads_error_has_one_code_in_every_command() {
    let wraps: [&dyn Fn(FetchError) -> Box<dyn Explained>; 5] = [
        &|e| Box::new(BuildError::from(e)),
        &|e| Box::new(PackageError::from(e)),
        &|e| Box::new(OsPackagesError::from(e)),
        &|source| {
            let suite = "bookworm".to_owned();
            Box::new(OsPackagesError::from(ArchiveError::Download {
                suite,
                source,
            }))
        },
        &|source| {
            let [package, version] = ["x", "1"].map(str::to_owned);
            Box::new(DebError::Download {
                package,
                version,
                source,
            })
        },
    ];
    let failed = |source: fn() -> Error| {
        move || FetchError::Io {
            doing: "write",
            path: PathBuf::from("f"),
            source: source(),
        }
    };
    one_code(codes::NO_SPACE, failed(full), &wraps);
    one_code(codes::STORE_IO, failed(broken), &wraps);
}

#[test]
fn a_stores_error_has_one_code_in_every_command() {
    let wraps: [&dyn Fn(StoreError) -> Box<dyn Explained>; 5] = [
        &|e| Box::new(PullError::from(e)),
        &|e| Box::new(BuildError::from(e)),
        &|e| Box::new(UpdateError::from(e)),
        &|e| Box::new(RunError::from(e)),
        &|e| Box::new(PackageError::from(e)),
    ];
    let no_space = || StoreError::at("write", &PathBuf::from("f"), full());
    one_code(codes::NO_SPACE, no_space, &wraps);
    one_code(codes::STORE_IO, || StoreError::NoPlace, &wraps);
    one_code(codes::INTERRUPTED, || StoreError::Interrupted, &wraps);
}

#[test]
fn what_wraps_an_operation_keeps_its_code() {
    let pull: [&dyn Fn(PullError) -> Box<dyn Explained>; 4] = [
        &|e| Box::new(BuildError::from(e)),
        &|e| Box::new(UpdateError::from(e)),
        &|e| Box::new(RunError::from(e)),
        &|e| Box::new(DeployError::from(e)),
    ];
    let unknown = || OciError::Unknown(PathBuf::from("x"));
    one_code(codes::NO_SUCH_IMAGE, || PullError::from(unknown()), &pull);
    let build: [&dyn Fn(BuildError) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(UpdateError::from(e)), &|e| {
            Box::new(RunError::from(e))
        }];
    let publish = || BuildError::from(PublishError::from(unknown()));
    one_code(codes::NO_SUCH_IMAGE, publish, &build);
    let unread = || BuildError::from(TreeError::Unknown(PathBuf::from("x")));
    one_code(codes::NOTHING_TO_AUDIT, unread, &build);
    let package = || BuildError::from(PackageError::from(StoreError::Interrupted));
    one_code(codes::INTERRUPTED, package, &build);
    let image: [&dyn Fn(OciError) -> Box<dyn Explained>; 1] = [&|e| Box::new(RunError::from(e))];
    one_code(codes::NO_SUCH_IMAGE, unknown, &image);
    let engine: [&dyn Fn(EngineError) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(RunError::from(e)), &|e| {
            Box::new(DeployError::from(e))
        }];
    let cancelled = || EngineError::Cancelled {
        doing: "loading".to_owned(),
    };
    one_code(codes::INTERRUPTED, cancelled, &engine);
    let reference: [&dyn Fn(BadReference) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(RegistryError::from(e)), &|e| {
            Box::new(PullError::from(RegistryError::from(e)))
        }];
    let bad = || "UPPER".parse::<Reference>().unwrap_err();
    one_code(codes::BAD_REFERENCE, bad, &reference);
}

#[test]
fn what_wraps_a_rendering_or_a_layer_keeps_its_code() {
    let render: [&dyn Fn(RenderError) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(BuildError::from(e)), &|e| {
            Box::new(EmitError::from(e))
        }];
    let missing = || RenderError::Missing {
        name: "Dockerfile".to_owned(),
    };
    one_code(codes::TEMPLATE, missing, &render);
    let layer: [&dyn Fn(LayerError) -> Box<dyn Explained>; 1] =
        [&|e| Box::new(BuildError::from(e))];
    one_code(codes::NO_SPACE, || LayerError::Write(full()), &layer);
    let prune: [&dyn Fn(PruneError) -> Box<dyn Explained>; 1] =
        [&|e| Box::new(BuildError::from(e))];
    let member = || PruneError::Member {
        wheel: "a.whl".to_owned(),
        file: "a.so".to_owned(),
        source: full(),
    };
    one_code(codes::NO_SPACE, member, &prune);
    let assemble: [&dyn Fn(AssembleError) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(BuildError::from(e)), &|e| {
            Box::new(PullError::from(e))
        }];
    let occupied = || AssembleError::NoLayout(PathBuf::from("d"));
    one_code(codes::OUTPUT_IN_THE_WAY, occupied, &assemble);
}

#[test]
fn what_wraps_a_distributions_error_keeps_its_code() {
    let choice: [&dyn Fn(DebianError) -> Box<dyn Explained>; 1] =
        [&|e| Box::new(OsPackagesError::from(e))];
    let unknown = || {
        let package = UnknownPackage {
            name: "no-such".to_owned(),
            near: None,
            known: None,
        };
        DebianError::Unknown(vec![package])
    };
    one_code(codes::PACKAGE_UNKNOWN, unknown, &choice);
    let keyring: [&dyn Fn(KeyringError) -> Box<dyn Explained>; 1] =
        [&|e| Box::new(OsPackagesError::from(e))];
    one_code(codes::CATALOG_INVALID, || KeyringError::Empty, &keyring);
    let rootfs: [&dyn Fn(RootfsError) -> Box<dyn Explained>; 1] =
        [&|e| Box::new(FinishError::from(e))];
    one_code(codes::NO_SPACE, || RootfsError::Write(full()), &rootfs);
    let damaged = || RootfsError::Database {
        path: "var/lib/dpkg/status".to_owned(),
    };
    one_code(codes::STORE_IO, damaged, &rootfs);
}

#[test]
fn what_wraps_a_projects_error_keeps_its_code() {
    // A project's error is a report, or has a code of its own.
    let catalog = || CatalogError::Inconsistent {
        file: "gpus.yaml".to_owned(),
        message: "m".to_owned(),
    };
    one_code(codes::CATALOG_INVALID, catalog, &[]);
    assert_eq!(ProjectError::from(catalog()).exit(), catalog().exit());
    one_code(codes::LOCK_STALE, || PlanError::NotLocked, &[]);
    assert_eq!(
        ProjectError::from(PlanError::NotLocked).exit(),
        PlanError::NotLocked.exit()
    );
    let config = || ConfigError::Invalid {
        path: PathBuf::from("c"),
        message: "m".to_owned(),
    };
    one_code(codes::CONFIG_INVALID, config, &[]);
    let convert = || ConvertError::Cycle {
        shown: "a".to_owned(),
        by: "b".to_owned(),
    };
    one_code(codes::FOREIGN_INVALID, convert, &[]);
}

/// No other crate can make these: what they are in has their code.
const PRIVATE: [&str; 1] = ["UvError"];

/// A new type of error gets a row above.
#[test]
fn no_error_is_forgotten() {
    let rows = std::fs::read_to_string(project("tests/offline/errors.rs")).unwrap();
    let mut folders = vec![project("src")];
    let (mut seen, mut forgotten) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&text);
            for named in text.split("\nimpl Explained for ").skip(1) {
                let name = named.split_whitespace().next().unwrap();
                seen += 1;
                if !PRIVATE.contains(&name)
                    && !rows.contains(&format!("Fn({name})"))
                    && !["(", " "]
                        .iter()
                        .any(|before| rows.contains(&format!("{before}{name}::")))
                {
                    forgotten.push(name.to_owned());
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} types were found");
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

/// Such errors are made on other systems alone, where no test runs; what they say is the same here.
#[test]
fn what_takes_linux_has_one_code_and_says_what_to_do() {
    let wraps: [&dyn Fn(SandboxError) -> Box<dyn Explained>; 2] =
        [&|e| Box::new(BuildError::from(e)), &|e| {
            Box::new(RunError::from(e))
        }];
    one_code(codes::NEEDS_LINUX, || SandboxError::NotLinux, &wraps);
    let unpack = |source| PullError::Unpack {
        path: PathBuf::from("d"),
        source,
    };
    let wraps: [&dyn Fn(UnpackError) -> Box<dyn Explained>; 3] = [
        &|e| Box::new(BuildError::Unpack(e)),
        &|e| Box::new(unpack(e)),
        &|e| Box::new(BuildError::from(unpack(e))),
    ];
    one_code(codes::NEEDS_LINUX, || UnpackError::NotLinux, &wraps);
    assert_eq!(codes::NEEDS_LINUX.exit(), 3);
    let run = RunError::from(SandboxError::NotLinux);
    insta::assert_snapshot!(format!("{}\n{}", chain(&run), run.help()), @r"
    only Linux runs programs of an image without a container engine
    use a container engine, Docker Desktop for instance, or start stackforge on Linux: in a container or a virtual machine
    ");
    assert!(unpack(UnpackError::NotLinux).help().contains("-o oci:DIR"));
    // A build goes on without what cannot run, and says so in its report.
    assert!(SandboxError::NotLinux.is_of_machine());
}

#[test]
fn each_code_has_one_exit_status() {
    let lines: String = TABLE
        .iter()
        .map(|row| format!("{} {} {}\n", row.code, row.code.exit(), row.title))
        .collect();
    insta::assert_snapshot!(lines);
    for row in TABLE {
        assert!([1, 2, 3, 4, 5, 130].contains(&row.code.exit()));
        assert!(!row.code.fix().is_empty(), "{}", row.code);
    }
}
