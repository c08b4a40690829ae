//! `stackforge build --all-variants`: builds each variant in its own process, on the engine that [`fleet`]
//! chooses.

mod child;
mod show;

use super::Outcome;
use super::args::{BuildArgs, Common, EngineChoice};
use super::lock::locking;
use super::matrix::counted;
use super::output::{Failure, json, print};
use super::progress::sizes;
use super::session::{Session, runtime};
use super::signals::stop_on_signal;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::{Value, json};
use stackforge_build::fleet::{self, FleetEvent, JobResult};
use stackforge_build::wants;
use stackforge_plan::project::{Project, ProjectError};
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::lock::Lock;
use stackforge_stack::matrix::{Expansion, Variant, build_order};
use stackforge_stack::rules::Machine;
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use stackforge_types::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use child::{first, images, load};
use show::Show;

const HERE: &str = "this machine";

/// A place that builds variants: an engine at an address, or this machine.
struct Place {
    address: Option<String>,
    platforms: BTreeSet<Platform>,
}

impl Place {
    fn name(&self) -> &str {
        self.address.as_deref().unwrap_or(HERE)
    }
}

/// One variant to build.
struct Job<'a> {
    /// Its number among the stack's variants.
    number: usize,
    variant: &'a Variant,
    /// Whether only the native engine can build it.
    native: bool,
    /// ID of the image of an earlier build, in some engine.
    image: Option<String>,
}

/// The result of a build.
struct Ended {
    place: usize,
    seconds: f64,
    exit: i32,
    /// The document that it printed with `--json`.
    document: Value,
}

pub fn run(common: &Common, args: &BuildArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    let project = &session.project;
    let ((lock, expansion), new_lock) = locking(common, &session, args.locked, judged)?;
    let mut jobs = Vec::new();
    for number in build_order(&expansion.variants).order {
        let variant = &expansion.variants[number];
        let plan = project.planned(&variant.stack, &lock)?.plan;
        let built = session.store.action(plan.key());
        jobs.push(Job {
            number,
            variant,
            native: wants(&plan).native(),
            image: built.and_then(|action| action.image),
        });
    }
    let engines = jobs.iter().filter(|job| !job.native);
    let platforms: Vec<Platform> = engines.map(|job| job.variant.platform).collect();
    let mut places = places(&platforms, args.engine, &session.config.builders);
    // Variants that only the native engine can build are built here; no platform moves others here.
    if jobs.iter().any(|job| job.native) && places.iter().all(|p| p.address.is_some()) {
        places.push(Place {
            address: None,
            platforms: BTreeSet::new(),
        });
    }
    let fleet = Fleet {
        common,
        args,
        jobs: &jobs,
        places: &places,
        matrix: project.file.single().is_none(),
        show: Show::new(common),
        new_lock,
    };
    let start = Instant::now();
    let (came, lost) = runtime()?.block_on(fleet.build());
    fleet.report(&came, &lost, start.elapsed().as_secs_f64())
}

/// Returns the lock and the variants that it allows.
fn judged(project: &Project) -> Result<(Lock, Expansion), ProjectError> {
    let lock = project.required_lock()?;
    let (expansion, stale) = project.judged(Some(&lock), &Machine::default())?;
    project.current(stale)?;
    Ok((lock, expansion))
}

/// Returns the builders of the platforms, each once, and this machine for platforms without one.
fn places(
    platforms: &[Platform],
    engine: EngineChoice,
    builders: &BTreeMap<Platform, Vec<String>>,
) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut add = |address: Option<&String>, platform| match places
        .iter_mut()
        .find(|p| p.address.as_ref() == address)
    {
        Some(place) => drop(place.platforms.insert(platform)),
        None => places.push(Place {
            address: address.cloned(),
            platforms: BTreeSet::from([platform]),
        }),
    };
    for platform in platforms.iter().collect::<BTreeSet<_>>() {
        let builders = builders.get(platform).filter(|b| !b.is_empty());
        match builders.filter(|_| engine != EngineChoice::Native) {
            Some(builders) => builders.iter().for_each(|b| add(Some(b), *platform)),
            None => add(None, *platform),
        }
    }
    places
}

struct Fleet<'a> {
    common: &'a Common,
    args: &'a BuildArgs,
    /// In the order in which they are begun.
    jobs: &'a [Job<'a>],
    places: &'a [Place],
    /// Whether the stack has a matrix, so that variants have to be named.
    matrix: bool,
    show: Show,
    /// What was locked before the first build.
    new_lock: Option<Value>,
}

/// Places that were lost, with the reason.
type Lost = Vec<(usize, String)>;

impl Fleet<'_> {
    /// Returns the jobs. Each has as its home the place that has its image, or the only one that can build it.
    async fn jobs(&self) -> Vec<fleet::Job> {
        let asked = self.places.iter().map(|place| images(place, self.jobs));
        let images = join_all(asked).await;
        let home = |(number, job): (usize, &Job<'_>)| fleet::Job {
            platform: job.variant.platform,
            home: if job.native {
                self.places.iter().position(|p| p.address.is_none())
            } else {
                images.iter().position(|have| have.contains(&number))
            },
        };
        self.jobs.iter().enumerate().map(home).collect()
    }

    async fn build(&self) -> (Vec<JobResult<Ended>>, Lost) {
        let cancel = Cancel::new();
        stop_on_signal(&cancel);
        let jobs = self.jobs().await;
        let places: Vec<_> = self.places.iter().map(|p| p.platforms.clone()).collect();
        let mut lost = Vec::new();
        let mut on_event = |event: FleetEvent<'_>| match event {
            FleetEvent::Starts { job, place } => {
                let (name, place) = (&self.jobs[job].variant.name, self.places[place].name());
                self.show.line(&format!("{name}: on {place}"));
            }
            FleetEvent::Lost { place, why } => {
                lost.push((place, why.to_owned()));
                let place = self.places[place].name();
                self.show.line(&format!("{place} is lost: {why}"));
            }
        };
        let cancelled = &cancel;
        let came = fleet::spread(
            &jobs,
            &places,
            &cancel,
            |place| async move { load(&self.places[place]).await }.boxed_local(),
            |job, place| async move { self.work(job, place, cancelled).await }.boxed_local(),
            &mut on_event,
        );
        let came = came.await;
        (came, lost)
    }

    fn report(&self, came: &[JobResult<Ended>], lost: &Lost, seconds: f64) -> Outcome {
        let mut came: Vec<_> = self.jobs.iter().zip(came).collect();
        came.sort_by_key(|(job, _)| job.number);
        let rows: Vec<Row> = (came.iter())
            .map(|(job, came)| self.row(job.variant, came))
            .collect();
        let lost: Vec<Value> = lost
            .iter()
            .map(|(place, why)| json!({ "builder": self.places[*place].name(), "reason": why }))
            .collect();
        let built = rows.iter().filter(|row| row.exit == 0).count();
        let mut document = json!({
            "variants": rows.iter().map(|row| &row.document).collect::<Vec<_>>(),
            "lost": lost,
            "seconds": seconds,
            "locked": self.new_lock,
        });
        let table = table(&rows);
        if built == rows.len() {
            if self.common.json {
                document["ok"] = true.into();
                json(&document);
            } else {
                print(&table)
            }
            return Ok(());
        }
        let exit = if rows.iter().any(|row| row.exit == 130) {
            130
        } else if rows.iter().all(|row| [0, 3].contains(&row.exit)) {
            // Only the environment failed: the variants are not at fault.
            3
        } else {
            1
        };
        let of = counted(rows.len(), "variant");
        let what = format!("{built} of {of} built");
        let d = Diagnostic::error(codes::VARIANTS_LEFT, what);
        let mut failure = Failure::ending(exit, d.help(
            "what each said stands above; run the same command again when it is mended: what is built is found",
        ));
        failure.before = Some(table);
        if let Value::Object(document) = document {
            failure.json.extend(document);
        }
        Err(failure)
    }

    fn row(&self, variant: &Variant, came: &JobResult<Ended>) -> Row {
        let platform = variant.platform.to_string();
        let mut document = json!({ "name": variant.name, "platform": platform, "ok": false });
        let unbuilt = |exit, state: &str, mut document: Value| {
            document["reason"] = state.into();
            Row {
                cells: [&variant.name, "-", state, "", ""].map(str::to_owned),
                exit,
                document,
            }
        };
        let ended = match came {
            JobResult::To(ended) => ended,
            JobResult::Nowhere => {
                let state = format!("no engine for {platform} is left");
                return unbuilt(3, &state, document);
            }
            JobResult::Dangerous => return unbuilt(3, "engines were lost under it", document),
            JobResult::Cancelled => return unbuilt(130, "not begun", document),
        };
        let place = self.places[ended.place].name();
        let result = &ended.document;
        document["builder"] = place.into();
        document["seconds"] = ended.seconds.into();
        for key in ["ok", "image", "cached", "diagnostics", "log"] {
            if let Some(value) = result.get(key) {
                document[key] = value.clone();
            }
        }
        let state = match (ended.exit, result["cached"].as_bool()) {
            (0, Some(true)) => "nothing to do".to_owned(),
            (0, _) => "built".to_owned(),
            (130, _) => "stopped".to_owned(),
            _ => first(result).map_or_else(
                || "failed".to_owned(),
                |(code, what)| format!("{code}: {what}"),
            ),
        };
        let size = serde_json::from_value(result["image"].clone()).map(sizes);
        let seconds = format!("{:.0} s", ended.seconds);
        Row {
            cells: [
                variant.name.clone(),
                place.to_owned(),
                state,
                seconds,
                size.unwrap_or_default(),
            ],
            exit: ended.exit,
            document,
        }
    }
}

struct Row {
    /// The cells of a row: variant, place, result, duration, size.
    cells: [String; 5],
    exit: i32,
    document: Value,
}

fn table(rows: &[Row]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|r| r.cells[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut out = String::new();
    for row in rows {
        let [name, place, state, seconds, size] = &row.cells;
        let [w0, w1, w2, w3, w4] = widths;
        let line = format!("{name:w0$}  {place:w1$}  {state:w2$}  {seconds:>w3$}  {size:>w4$}");
        out.push_str(&printable::line(line.trim_end()));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD: Platform = Platform::LinuxAmd64;
    const ARM: Platform = Platform::LinuxArm64;

    #[test]
    fn a_builder_of_two_platforms_is_one_place_and_the_rest_is_built_here() {
        let builders = BTreeMap::from([
            (AMD, vec!["tcp://a:1".to_owned(), "tcp://both:1".to_owned()]),
            (ARM, vec!["tcp://both:1".to_owned()]),
        ]);
        let named = |platforms: &[Platform], engine, builders| {
            let places = places(platforms, engine, builders);
            let one = |p: &Place| (p.name().to_owned(), p.platforms.len());
            places.iter().map(one).collect::<Vec<_>>()
        };
        let auto = EngineChoice::Auto;
        let none = BTreeMap::from([(ARM, Vec::new())]);
        assert_eq!(
            named(&[AMD, ARM, AMD], auto, &builders),
            [("tcp://a:1".to_owned(), 1), ("tcp://both:1".to_owned(), 2)]
        );
        assert_eq!(named(&[AMD, ARM], auto, &none), [(HERE.to_owned(), 2)]);
        assert_eq!(
            named(&[AMD], EngineChoice::Native, &builders),
            [(HERE.to_owned(), 1)]
        );
    }
}
