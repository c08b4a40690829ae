//! `stackforge render --compose` and `--kubernetes`.

use super::Outcome;
use super::args::{Common, RenderArgs};
use super::output::{Failure, json, print, print_status, shown, warn};
use super::push::plain_http;
use super::session::{Session, only, runtime, until_stopped};
use stackforge_deploy::{
    DeployError, Instance, Located, Service, compose, in_engine, in_registry, is_rendered,
    kubernetes, pushed,
};
use stackforge_device::Device;
use stackforge_distribute::publish::PushedImage;
use stackforge_distribute::pull::Settings;
use stackforge_engine::docker::Docker;
use stackforge_image::store::save;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::spec::Stack;
use stackforge_transfer::RetryPolicy;
use stackforge_types::printable::{line, word};
use std::io;
use std::path::Path;

pub fn run(common: &Common, args: &RenderArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let wanted = wanted(common, args, &session)?;
    let images = match &args.image {
        Some(_) => named(common, args, &session, &wanted)?,
        None => recorded(args, &session, &wanted)?,
    };
    let service = service(args, wanted, images, &session);
    let command = line(&command(args)).into_owned();
    let text = match service.instances.as_slice() {
        [one] if args.compose => compose(&service, one, &command)?,
        _ => kubernetes(&service, &session.project.catalog, &command)?,
    };
    show(common, args, &service, &text)
}

/// A stack or variant, and the key of its plan.
type Wanted = (Stack, String);

/// Returns what is started: the stack, the named variants or, in a cluster, all.
fn wanted(common: &Common, args: &RenderArgs, session: &Session) -> Result<Vec<Wanted>, Failure> {
    let names: Vec<Option<String>> = if args.compose {
        vec![only(&args.variants)?.map(str::to_owned)]
    } else if !args.variants.is_empty() {
        let mut names = args.variants.clone();
        names.dedup();
        names.into_iter().map(Some).collect()
    } else if session.project.file.single().is_some() {
        vec![None]
    } else {
        let all = session.project.variants()?.variants.into_iter();
        all.map(|variant| Some(variant.name)).collect()
    };
    let one = |name: Option<String>| {
        let (chosen, plan) = session.plan(common, name.as_deref())?;
        Ok((chosen.stack, plan.image_key().to_string()))
    };
    names.into_iter().map(one).collect()
}

/// Finds what this machine pushed or, for a Compose file, what its engine has.
fn recorded(
    args: &RenderArgs,
    session: &Session,
    wanted: &[Wanted],
) -> Result<Vec<Located>, Failure> {
    let stacks: Vec<(&Stack, String)> = wanted.iter().map(|(s, key)| (s, key.clone())).collect();
    let missing = match pushed(&session.store, &stacks, |names| help(args, wanted, names)) {
        Ok(images) => return Ok(images.into_iter().map(Located::Registry).collect()),
        Err(missing) => missing,
    };
    if let (true, [(stack, key)]) = (args.compose, wanted)
        && let Some(image) = built(stack, key)?
    {
        return Ok(vec![image]);
    }
    Err(missing.into())
}

/// Returns the image of this machine's engine, if one answers and has it.
fn built(stack: &Stack, key: &str) -> Result<Option<Located>, Failure> {
    let name = format!("{}:latest", stack.name());
    let found = runtime()?.block_on(async {
        let Ok(docker) = Docker::connect(None).await else {
            return Ok(None);
        };
        in_engine(&docker, &name, key, stack.platform.value).await
    });
    Ok(found?.map(Located::Engine))
}

/// Says how images get a digest.
fn help(args: &RenderArgs, wanted: &[Wanted], names: &[String]) -> String {
    let file = args.stack.display().to_string();
    let repository = wanted.first().and_then(|(stack, _)| stack.publish.as_ref());
    let repository = match repository {
        Some(publish) => publish.repository.as_str(),
        None => "REGISTRY/REPOSITORY",
    };
    let is_matrix = wanted.iter().any(|(stack, _)| stack.variant.is_some());
    let build = match (is_matrix, names) {
        (false, _) => format!("--push {repository}:TAG"),
        (true, [one]) => format!("--variant {} --push {repository}:TAG --index", word(one)),
        (true, _) => format!("--all-variants --push {repository}:TAG --index"),
    };
    let mut help = format!(
        "run `stackforge build {} {build}`; or name what another machine pushed with `--image REF`",
        word(&file)
    );
    if args.compose {
        help += "; or build it into this machine's engine";
    } else if wanted.len() > names.len() {
        help += "; or choose others with `--variant`";
    }
    help
}

/// Finds what `--image` names, for each stack.
fn named(
    common: &Common,
    args: &RenderArgs,
    session: &Session,
    wanted: &[Wanted],
) -> Result<Vec<Located>, Failure> {
    let Some(reference) = &args.image else {
        return Ok(Vec::new());
    };
    if common.offline {
        return Err(Failure::of(
            Diagnostic::error(
                codes::OFFLINE,
                format!("what {reference} is has to be asked of its registry"),
            )
            .help("leave `--offline` out"),
        ));
    }
    let settings = Settings {
        store: &session.store,
        config: &session.config,
        plain_http: plain_http(args.plain_http),
        patience: RetryPolicy::default(),
        rate: None,
        observer: None,
    };
    let found = runtime()?.block_on(until_stopped(async {
        let mut found = Vec::new();
        for (stack, key) in wanted {
            found.push(in_registry(reference, (stack, key), &settings).await?);
        }
        Ok::<Vec<(PushedImage, bool)>, DeployError>(found)
    }))?;
    let mut images = Vec::new();
    for ((image, is_current), (stack, _)) in found.into_iter().zip(wanted) {
        if !is_current {
            changed(common, session, stack, &reference.to_string());
        }
        images.push(Located::Registry(image));
    }
    Ok(images)
}

fn changed(common: &Common, session: &Session, stack: &Stack, reference: &str) {
    let warning = Diagnostic::warning(
        codes::STACK_CHANGED,
        format!("`{}` changed since {reference} was built", stack.name()),
    );
    let help = "ports, volumes and health check are those of the stack as it is now";
    warn(common, &session.project.report(vec![warning.help(help)]));
}

fn service(
    args: &RenderArgs,
    wanted: Vec<Wanted>,
    images: Vec<Located>,
    session: &Session,
) -> Service {
    let instances = wanted.into_iter().zip(images);
    let instances = instances.map(|((stack, _), image)| Instance {
        name: stack.name().to_owned(),
        config: stack.image.unwrap_or_default(),
        image,
    });
    Service {
        name: session.project.file.pattern.stack.value.to_string(),
        instances: instances.collect(),
        gpus: args.gpus,
        shared_memory: args.shm_size.map(|size| size.0),
        memory: Device::memory_here(),
        storage: args.volume_size.0,
    }
}

/// Returns the command that writes the file again.
fn command(args: &RenderArgs) -> String {
    let form = if args.compose {
        "--compose"
    } else {
        "--kubernetes"
    };
    let mut command = format!("stackforge render {} {form}", word(&shown(&args.stack)));
    for variant in &args.variants {
        command += &format!(" --variant {}", word(variant));
    }
    if let Some(image) = &args.image {
        command += &format!(" --image {}", word(&image.to_string()));
    }
    match args.gpus {
        None => {}
        Some(stackforge_deploy::Gpus::All) => command += " --gpus all",
        Some(stackforge_deploy::Gpus::Count(count)) => command += &format!(" --gpus {count}"),
    }
    if let Some(size) = args.shm_size {
        command += &format!(" --shm-size {}", size.0);
    }
    command
}

fn show(common: &Common, args: &RenderArgs, service: &Service, text: &str) -> Outcome {
    if let Some(path) = &args.output {
        write(path, text)?;
    }
    if common.json {
        let images = service.instances.iter().map(|instance| {
            let (image, digest) = match &instance.image {
                Located::Registry(image) => (
                    format!("{}@{}", image.repository, image.digest),
                    image.digest.to_string(),
                ),
                Located::Engine(image) => (image.id.clone(), image.id.clone()),
            };
            serde_json::json!({ "name": instance.name, "image": image, "digest": digest })
        });
        json(&serde_json::json!({
            "file": args.output,
            "images": images.collect::<Vec<_>>(),
            "text": text,
        }));
        return Ok(());
    }
    let Some(path) = &args.output else {
        print(text);
        return Ok(());
    };
    let file = path.to_string_lossy();
    let start = if args.compose {
        format!("docker compose -f {} up -d", word(&file))
    } else {
        format!("kubectl apply -f {}", word(&file))
    };
    print_status(common, &format!("start it with `{start}`"));
    print(&format!("{}: written\n", shown(path)));
    Ok(())
}

/// Writes a new file, or replaces one that this command wrote.
fn write(path: &Path, text: &str) -> Outcome {
    let ours = || std::fs::read_to_string(path).is_ok_and(|old| is_rendered(&old));
    let written = if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) && !ours() {
        Err(io::ErrorKind::AlreadyExists.into())
    } else {
        save(path, text.as_bytes())
    };
    written.map_err(|e| {
        let what = format!("cannot write {}: {e}", path.display());
        Failure::of(Diagnostic::error(codes::BAD_VALUE, what).help(
            "name another file with `-o`; an existing one is overwritten only if `stackforge render` wrote it",
        ))
    })
}
