//! Audits what was built before it is used: each compiled wheel, then the whole image.

use super::BuildError;
use stackforge_audit::{self as audit, Audit, Fault, Gpu, Image, Promise, Question, Target};
use stackforge_binary::tar::{MemberKind, Reader};
use stackforge_engine::EngineError;
use stackforge_engine::docker::{Docker, Files};
use stackforge_image::store::Store;
use stackforge_plan::Plan;
use stackforge_stack::catalog::Catalog;
use stackforge_stack::spec::{Platform, Sm};
use stackforge_types::Cancel;
use stackforge_types::Digest;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::block_in_place;

/// Path of the audit's result in the image.
pub const AUDIT_PATH: &str = "/usr/share/stackforge/audit.json";
const PIECE: usize = 256 << 10;

/// The files of an image in an engine.
struct InEngine<'a> {
    files: Files,
    name: String,
    env: Vec<String>,
    ended: Ended,
    meter: Meter<'a>,
}

/// Counts the bytes that have been read and reports them as progress.
struct Meter<'a> {
    done: AtomicU64,
    size: u64,
    on_progress: OnProgress<'a>,
}

/// Called with the bytes read so far and about how many there are, on the thread that reads.
pub type OnProgress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Bytes between two progress reports.
const STEP: u64 = 64 << 20;

impl<'a> InEngine<'a> {
    async fn open(
        docker: &Docker,
        image: &str,
        platform: Option<Platform>,
        cancel: &Cancel,
        on_progress: OnProgress<'a>,
    ) -> Result<Self, BuildError> {
        let Some(info) = docker.image(image).await? else {
            return Err(BuildError::NoImage {
                image: image.to_owned(),
            });
        };
        let of = (info.os.as_str(), info.architecture.as_str());
        if let Some(platform) = platform.filter(|p| of != ("linux", p.arch())) {
            return Err(BuildError::OtherPlatform {
                platform,
                found: format!("{}/{}", info.os, info.architecture),
            });
        }
        Ok(Self {
            files: docker.files(image, cancel).await?,
            name: image.to_owned(),
            env: info.env,
            ended: Ended::default(),
            meter: Meter {
                done: AtomicU64::new(0),
                size: info.size.unpacked.unwrap_or(info.size.bytes()),
                on_progress,
            },
        })
    }
}

impl Image for InEngine<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn env(&self) -> &[String] {
        &self.env
    }

    /// An engine exports one merged file system, not layers.
    fn layers(&self) -> usize {
        1
    }

    fn open(&self, _: usize) -> Result<Box<dyn io::Read + Send + '_>, Fault> {
        let counted = Counted {
            content: self.files.open(),
            meter: &self.meter,
        };
        Ok(Box::new(self.ended.watch(counted)))
    }
}

struct Counted<'a, R> {
    content: R,
    meter: &'a Meter<'a>,
}

impl<R: io::Read> io::Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(buf)?;
        let Meter {
            done,
            size,
            on_progress,
        } = self.meter;
        let before = done.fetch_add(n as u64, Ordering::Relaxed);
        let now = before + n as u64;
        if before / STEP != now / STEP {
            on_progress(now.min(*size), *size);
        }
        Ok(n)
    }
}

/// Keeps the engine's error while files are streamed: their reader sees it only as text.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Option<EngineError>>>);

struct Watched<R> {
    content: R,
    ended: Ended,
}

impl Ended {
    fn watch<R: io::Read>(&self, content: R) -> BufReader<impl io::Read + use<R>> {
        let ended = self.clone();
        BufReader::with_capacity(PIECE, Watched { content, ended })
    }

    /// Returns the engine's error if there was one, else `made`.
    fn or<T>(&self, made: Result<T, impl Into<BuildError>>) -> Result<T, BuildError> {
        match self.0.lock().unwrap_or_else(|e| e.into_inner()).take() {
            Some(e) => Err(e.into()),
            None => made.map_err(Into::into),
        }
    }
}

impl<R: io::Read> io::Read for Watched<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let failed = |e: io::Error| match e.downcast::<EngineError>() {
            Ok(engine) => {
                let error = io::Error::other(engine.to_string());
                let mut ended = self.ended.0.lock().unwrap_or_else(|e| e.into_inner());
                ended.get_or_insert(engine);
                error
            }
            Err(e) => e,
        };
        self.content.read(buf).map_err(failed)
    }
}

/// Audits an image of the engine, which has to be for `platform`. `ask` runs the audit on the image.
pub async fn audit_image(
    docker: &Docker,
    image: &str,
    platform: Option<Platform>,
    cancel: &Cancel,
    on_progress: OnProgress<'_>,
    ask: impl FnOnce(Target<'_>) -> Result<Audit, audit::TreeError>,
) -> Result<Audit, BuildError> {
    let image = InEngine::open(docker, image, platform, cancel, on_progress).await?;
    let answer = block_in_place(|| ask(Target::Image(&image)));
    let ended = image.ended.clone();
    image.files.close().await;
    ended.or(answer)
}

/// Audits files against what the plan promises.
pub(super) struct AuditSpec<'a> {
    pub plan: &'a Plan,
    pub catalog: &'a Catalog,
    promise: Promise,
}

impl<'a> AuditSpec<'a> {
    pub fn of(plan: &'a Plan, catalog: &'a Catalog) -> Self {
        let major = |cuda: &String| cuda.split('.').next()?.parse().ok();
        Self {
            plan,
            catalog,
            promise: Promise {
                cuda: plan.cuda.as_ref().and_then(major),
                cxx11_abi: plan.image().cxx11_abi,
            },
        }
    }

    /// Audits a compiled wheel, which needs code for every SM of the plan.
    pub fn wheel(&self, wheel: &Path) -> Result<Audit, audit::TreeError> {
        self.ask(Target::Path(wheel), &self.plan.sm)
    }

    /// Audits an image, which has to run on every device of the plan's platform.
    pub fn image(&self, image: Target<'_>) -> Result<Audit, audit::TreeError> {
        self.ask(image, &self.plan.image().devices)
    }

    fn ask(&self, target: Target<'_>, sms: &[Sm]) -> Result<Audit, audit::TreeError> {
        let gpu = |sm: &Sm| Gpu {
            name: format!("sm_{}", sm.digits()),
            sm: sm.base(),
            required: true,
        };
        audit::audit(&Question {
            catalog: self.catalog,
            target,
            gpus: sms.iter().map(gpu).collect(),
            python: Some(self.plan.python),
            sysroot: None,
            promise: self.promise,
        })
    }
}

/// A wheel that a builder stage compiled.
pub(super) struct CompiledWheel {
    pub library: String,
    pub wheel: PathBuf,
    pub digest: Digest,
}

/// Copies compiled wheels out of `image` into the store, by digest. The image has one directory for each
/// library, named after it.
pub(super) async fn wheels(
    docker: &Docker,
    image: &str,
    store: &Store,
    cancel: &Cancel,
) -> Result<Vec<CompiledWheel>, BuildError> {
    let files = docker.files(image, cancel).await?;
    let ended = Ended::default();
    let wheels = block_in_place(|| take(ended.watch(files.open()), store));
    files.close().await;
    ended.or(wheels)
}

fn take(stream: impl io::Read, store: &Store) -> Result<Vec<CompiledWheel>, BuildError> {
    let odd = |e: &dyn std::error::Error| BuildError::NoReport {
        reason: format!("the compiled wheels: {}", stackforge_stack::diag::chain(e)),
    };
    let mut made = Vec::new();
    let mut reader = Reader::new(stream);
    while let Some(mut entry) = reader.next().map_err(|e| odd(&e))? {
        let path = entry.header.path.clone();
        let Some((library, name)) = path.split_once('/') else {
            continue;
        };
        if entry.header.kind != MemberKind::File || !name.ends_with(".whl") || name.contains('/') {
            continue;
        }
        let blob = store.put(&mut entry, None)?;
        made.push(CompiledWheel {
            library: library.to_owned(),
            wheel: store.named(&blob.digest, name)?,
            digest: blob.digest,
        });
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackforge_stack::diag::{Explained as _, codes};
    use std::io::Error;
    use std::io::Read as _;

    /// A reader that returns its error once, then the end.
    struct Fails(Option<Error>);

    impl io::Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            self.0.take().map_or(Ok(0), Err)
        }
    }

    /// Returns the error of reading `fails` to its end.
    fn read(fails: Error) -> BuildError {
        let ended = Ended::default();
        let read = ended.watch(Fails(Some(fails))).read_to_end(&mut Vec::new());
        let made = read.map_err(|source| audit::TreeError::Layer {
            image: "x".to_owned(),
            layer: 0,
            source: source.into(),
        });
        ended.or(made).unwrap_err()
    }

    #[test]
    fn an_engine_that_fails_is_no_damaged_image() {
        let cancelled = EngineError::Cancelled {
            doing: "reading the files of x".to_owned(),
        };
        let e = read(Error::other(cancelled));
        assert_eq!((e.code(), e.exit()), (codes::INTERRUPTED, 130));
        let gone = EngineError::Gone {
            doing: "reading the files of x".to_owned(),
            source: None,
        };
        assert_eq!(read(Error::other(gone)).code(), codes::ENGINE_GONE);
    }

    #[test]
    fn what_else_cannot_be_read_is_the_images_fault() {
        let e = read(Error::other("a checksum is wrong"));
        assert_eq!((e.code(), e.exit()), (codes::IMAGE_UNREADABLE, 1));
    }
}
