//! `stackforge run`.

mod image;
mod subject;

use super::args::{Common, RunArgs, RunEngine};

use super::output::{Failure, json, print, print_message, print_status, warn};
use super::screen;
use super::session::runtime;
use super::signals::stop_on_signal;
use stackforge_build::{BuildError, names_engine, reached};
use stackforge_device::Device;
use stackforge_distribute::publish::Facts;
use stackforge_distribute::pull::{Machine, doubt};
use stackforge_engine::docker::Docker;
use stackforge_image::store::Store;
use stackforge_run::locate::{Here, Progress, Search, in_engine};
use stackforge_run::native::{AtRest, prepare};
use stackforge_run::{
    Cache, Choice, Engine, Gpus, ImageFacts, Launch, Outcome, Request, RunError, Surroundings,
    launch,
};
use stackforge_stack::diag::{Diagnostic, Report, Source, codes};
use stackforge_types::Cancel;
use stackforge_types::printable::line;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use subject::Subject;

pub fn run(common: &Common, args: &RunArgs) -> Result<ExitCode, Failure> {
    let subject = Subject::read(common, args)?;
    if args.print {
        print_line(common, args, &subject)?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = Store::open(common.store.as_deref())?;
    let runtime = runtime()?;
    let launch = match runtime.block_on(start(common, args, &subject, &store))? {
        Started::Ended(status) => {
            // It may wait for a key that nobody presses.
            runtime.shutdown_background();
            return Ok(ExitCode::from(status));
        }
        Started::Ready(launch) => launch,
    };
    // Its threads and sockets are not the command's.
    drop(runtime);
    screen::end();
    Err(launch.replace_process().into())
}

/// What came of an image.
enum Started {
    /// The native engine or Docker's API ran it to its end, or it goes on by itself.
    Ended(u8),
    /// The command that starts it replaces this process.
    Ready(Box<Launch>),
}

async fn start(
    common: &Common,
    args: &RunArgs,
    subject: &Subject,
    store: &Store,
) -> Result<Started, Failure> {
    let cancel = Cancel::new();
    let stopping = stop_on_signal(&cancel);
    let request = request(args);
    let surroundings = Surroundings::here();
    let engine = match subject {
        Subject::AtRest(_) | Subject::Root { .. } => no_engine(args)?,
        Subject::Stack { .. } | Subject::Name(_) => engine(args).await?,
    };
    if engine.is_none() {
        // Before anything is pulled for it.
        stackforge_sandbox::supported().map_err(RunError::from)?;
    }
    let on = |progress: Progress<'_>| image::say(common, progress);
    let asked = engine.as_ref();
    let search = Search {
        store,
        engine: asked.map(|(engine, docker)| (engine, docker.as_ref())),
        on: &on,
    };
    let found = tokio::select! {
        found = image::find(common, args, &search, subject) => found?,
        () = cancel.cancelled() => return Err(interrupted()),
    };
    image::warn_if_changed(common, &found, subject);
    let name = subject.shown();
    let at_rest = match found.here {
        Here::Engine { name, env } => {
            let Some((engine, docker)) = engine else {
                return Err(Failure::from(RunError::NoCommand(name)));
            };
            let facts = ImageFacts { env };
            let device = Device::here();
            doubted(common, args, &device, &engine, &found.labels);
            let launch = launch(&request, &name, &facts, &device, &surroundings, engine)?;
            print_reasons(common, &launch.choices);
            let Some(docker) = docker.filter(|_| !launch.has_command()) else {
                return Ok(Started::Ready(Box::new(launch)));
            };
            if let Some(stopping) = stopping {
                stopping.abort();
            }
            screen::end();
            return by_api(&launch, &docker).await;
        }
        Here::AtRest(at_rest) => at_rest,
    };
    if let AtRest::Image(image) = &at_rest {
        let labels = image
            .config
            .config()
            .as_ref()
            .and_then(|c| c.labels().clone());
        let labels = labels.unwrap_or_default().into_iter().collect();
        doubted_here(common, args, &Device::here(), &labels);
    }
    let prepared = prepare(&request, &name, at_rest, &surroundings, store, &cancel).await?;
    print_reasons(common, &prepared.choices);
    if cancel.is_cancelled() {
        return Err(interrupted());
    }
    // From here on signals are the program's.
    if let Some(stopping) = stopping {
        stopping.abort();
    }
    screen::end();
    Ok(Started::Ended(prepared.run(store).await?))
}

/// Starts a container where the engine's command is not there.
async fn by_api(launch: &Launch, docker: &Docker) -> Result<Started, Failure> {
    match launch.by_api(docker).await? {
        Outcome::Ended(status) => Ok(Started::Ended(status)),
        Outcome::Detached(id) => {
            print(&format!("{id}\n"));
            Ok(Started::Ended(0))
        }
    }
}

fn interrupted() -> Failure {
    Failure::of(
        Diagnostic::error(
            codes::INTERRUPTED,
            "interrupted before the program was started",
        )
        .help("what arrived is kept; the next run goes on from there"),
    )
}

/// Refuses a container engine for what is at rest.
fn no_engine(args: &RunArgs) -> Result<Option<(Engine, Option<Docker>)>, Failure> {
    match args.engine {
        RunEngine::Docker => Err(only_at_rest(args)),
        RunEngine::Auto | RunEngine::Native => Ok(None),
    }
}

fn only_at_rest(args: &RunArgs) -> Failure {
    Failure::of(
        Diagnostic::error(
            codes::BAD_VALUE,
            format!(
                "`{}` lies in files, and a container engine starts its own images",
                args.image
            ),
        )
        .help(
            "leave `--engine docker` and `--print` out, or load the image first: `docker load`, or \
             `stackforge pull -o docker`",
        ),
    )
}

/// Returns the engine that starts containers: the one that answers, else Podman, which needs no service.
async fn engine(args: &RunArgs) -> Result<Option<(Engine, Option<Docker>)>, Failure> {
    if args.engine == RunEngine::Native {
        return Ok(None);
    }
    let missing = match Docker::connect(None).await {
        Ok(docker) => {
            let info = docker.info().await?;
            return Ok(Some((Engine::of(&docker, &info).await?, Some(docker))));
        }
        Err(missing) => missing,
    };
    if !names_engine()
        && let Some(podman) = Engine::podman()
    {
        return Ok(Some((podman, None)));
    }
    match args.engine {
        RunEngine::Docker => Err(missing.into()),
        RunEngine::Auto | RunEngine::Native => {
            reached(Err(missing)).map_err(BuildError::from)?;
            Ok(None)
        }
    }
}

fn request(args: &RunArgs) -> Request {
    Request {
        gpus: args.gpus.clone(),
        shared_memory: args.shm_size.map(|size| size.0),
        cache: match &args.model_cache {
            Some(directory) => Cache::Directory(directory.clone()),
            None if args.no_model_cache => Cache::None,
            None => Cache::Own,
        },
        ports: args.publish.clone(),
        variables: args.env.clone(),
        volumes: args.volume.clone(),
        name: args.name.clone(),
        detach: args.detach,
        entrypoint: args.entrypoint.clone(),
        command: args.command.clone(),
        terminal: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
    }
}

/// Prints the engine's command and its reasons.
fn print_line(common: &Common, args: &RunArgs, subject: &Subject) -> Result<(), Failure> {
    let name = match subject {
        Subject::Stack { name, .. } | Subject::Name(name) => name.clone(),
        Subject::AtRest(_) | Subject::Root { .. } => {
            return Err(only_at_rest(args));
        }
    };
    let (device, engine, env) = match &args.root {
        Some(root) => {
            let device = Device::read(root);
            let engine = Engine::expected(&device);
            (device, engine, None)
        }
        None => {
            let device = Device::here();
            let (engine, env) = runtime()?.block_on(async {
                match engine(args).await? {
                    Some((engine, docker)) => {
                        let found = in_engine(&engine, docker.as_ref(), &name).await?;
                        Ok::<_, Failure>((engine, found.map(|image| image.env)))
                    }
                    None => Ok((Engine::expected(&device), None)),
                }
            })?;
            (device, engine, env)
        }
    };
    let facts = ImageFacts { env };
    let surroundings = Surroundings::here();
    let launch = launch(
        &request(args),
        &name,
        &facts,
        &device,
        &surroundings,
        engine,
    )?;
    if common.json {
        json(&serde_json::json!({
            "program": launch.engine.kind.program(),
            "arguments": launch.arguments(),
            "line": launch.line(),
            "engine": launch.engine.server,
            "choices": launch.choices,
        }));
        return Ok(());
    }
    if !common.quiet {
        let lines = launch
            .choices
            .iter()
            .map(|choice| format!("# {}\n", reason(choice)));
        print_message(&lines.collect::<String>());
    }
    print(&format!("{}\n", launch.line()));
    Ok(())
}

/// Prints why each decision was made, if `-v` asks for it.
fn print_reasons(common: &Common, choices: &[Choice]) {
    if common.verbose > 0 {
        for choice in choices {
            print_status(common, &reason(choice));
        }
    }
}

fn reason(choice: &Choice) -> String {
    let subject = match choice.arguments().as_slice() {
        [] => choice.what.to_owned(),
        arguments => arguments.join(" "),
    };
    line(&format!("{subject}: {}", choice.why)).into_owned()
}

/// Warns of an image that by its labels does not run on the engine's device.
fn doubted(
    common: &Common,
    args: &RunArgs,
    device: &Device,
    engine: &Engine,
    labels: &BTreeMap<String, String>,
) {
    if engine.elsewhere.is_none() {
        doubted_here(common, args, device, labels);
    }
}

fn doubted_here(
    common: &Common,
    args: &RunArgs,
    device: &Device,
    labels: &BTreeMap<String, String>,
) {
    let Ok(catalog) = stackforge_stack::catalog::load(common.catalog.as_deref()) else {
        return;
    };
    if args.gpus == Gpus::None {
        return;
    }
    let machine = Machine::of(device, &catalog);
    if let Some(why) = doubt(&machine, machine.platform, &Facts::read(labels)) {
        let warning = Diagnostic::warning(
            codes::NONE_RUNS,
            format!(
                "by its labels `{}` does not run on this device: {why}",
                args.image
            ),
        )
        .help("expect what uses the GPU to fail; `--gpus none` says that none is meant");
        warn(common, &Report::new(Source::default(), vec![warning]));
    }
}
