//! `stackforge attach`.

use super::Outcome;
use super::args::{AttachArgs, Common};
use super::output::{Failure, json, print};
use super::sbom::{bill, print_unknown_licences};
use super::session::{Session, runtime, until_stopped};
use stackforge_build::AUDIT_PATH;
use stackforge_build::validate::{REPORT_PATH, Report};
use stackforge_distribute::evidence::{
    self, Attached, Builder, EvidenceError, Inputs, Paths, PrivateKey, Request,
};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_transfer::registry::{Keychain, Options, Reference, Registry};
use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;

pub fn run(common: &Common, args: &AttachArgs) -> Outcome {
    let reference = Reference::from_str(&args.reference)?;
    let session = Session::open(common, &args.stack)?;
    let (_, plan) = session.plan(common, args.variant.as_deref())?;
    let mut bill = bill(&session, &plan)?;
    print_unknown_licences(common, &bill);
    let read = |path: &Path| std::fs::read(path).unwrap_or_default();
    let (stack, lock) = (read(&args.stack), read(&session.project.lock_path));
    let mut builder = Builder::of_environment(|name| std::env::var(name).ok());
    if let Some(id) = &args.builder {
        builder.id.clone_from(id);
    }
    let mut request = Request {
        inputs: Inputs {
            stack: &stack,
            lock: &lock,
        },
        builder,
        paths: Paths {
            audit: AUDIT_PATH,
            validation: REPORT_PATH,
        },
        store: &session.store,
        key: (args.key.as_deref())
            .map(PrivateKey::read)
            .transpose()
            .map_err(EvidenceError::from)?,
        validation: args.report.as_deref().map(report).transpose()?,
    };
    let registry = connect(common, &reference, &[])?;
    let (image, attached) = waited(async {
        let named = evidence::named(&registry, &reference).await?;
        let image = evidence::own(&bill, &reference, &named)?.clone();
        // The native engine keeps the report in the store, not in the image.
        if request.validation.is_none() {
            let known = session.store.action(&image.digest).and_then(|a| a.report);
            request.validation = known.map(|report| report.to_string().into_bytes());
        }
        let attached = evidence::attach(&registry, &reference, &mut bill, &image, &request).await?;
        Ok::<_, EvidenceError>((image, attached))
    })?;
    if common.json {
        json(&serde_json::json!({
            "image": image.digest, "attached": attached,
        }));
        return Ok(());
    }
    print(&table(&reference, &attached));
    Ok(())
}

fn table(reference: &Reference, attached: &[Attached]) -> String {
    let mut out = format!("{reference}: {} documents attached\n", attached.len());
    for one in attached {
        let kib = one.size.div_ceil(1 << 10);
        let _ = writeln!(
            out,
            "  {:20}  {kib:>5} KiB  {}",
            one.kind.about(),
            one.digest
        );
    }
    out
}

/// Reads a report to attach it unchanged, after checking that it is one.
fn report(path: &Path) -> Result<Vec<u8>, EvidenceError> {
    let bytes = std::fs::read(path).map_err(|source| EvidenceError::Report {
        path: path.to_owned(),
        source,
    })?;
    match Report::from_slice(&bytes) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(EvidenceError::NoReport {
            path: path.to_owned(),
            problem: e.to_string(),
        }),
    }
}

/// Waits for a registry's answer; Ctrl-C interrupts.
pub fn waited<T, E: Into<Failure>>(work: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    runtime()?.block_on(until_stopped(work))
}

/// Connects to a reference's registry. `mirrors` are used for reading only.
pub fn connect(
    common: &Common,
    reference: &Reference,
    mirrors: &[String],
) -> Result<Registry, Failure> {
    if common.offline {
        let what = format!("`{reference}` lies in a registry, and stackforge is offline");
        let offline = Diagnostic::error(codes::OFFLINE, what);
        return Err(Failure::of(offline.help("leave out `--offline`")));
    }
    let options = Options {
        mirrors: mirrors.to_vec(),
        ..Options::default()
    };
    let keychain = Arc::new(Keychain::of_user());
    Ok(Registry::connect(reference.host(), keychain, &options)?)
}
