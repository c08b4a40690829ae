//! The same work on the container engines that people have: Docker and Podman of three Debian releases,
//! with root and without, in both of Docker's stores.
//!
//! Each engine runs in a root file system and namespaces of its own. One test, which prints a table:
//! every cell is right, or the program refused with a code. STACKFORGE_ENGINES_TABLE names a file for the
//! table, STACKFORGE_ENGINES_ONLY the rows to run, by words of their names separated by commas; the
//! others are said to be left out. By default each day runs one fifth of the rows, the changed stacks are
//! built in both orders by one Docker and one Podman, and sid's engines run with root only: with
//! STACKFORGE_TEST_ALL set, all is done.
//!
//! Needs root, the network, the machine's own Docker Engine for its bridge, and what
//! `scripts/setup.sh tests` installs. What this machine lacks stands in the table; with CI set it is an
//! error.

mod columns;
mod engine;
mod roots;
mod stacks;
mod table;

use columns::{Bench, COLUMNS};
use engine::{Engine, Kind, NoEngine};
use stacks::Kit;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use support::all_have_turns;
use support::server::{self, Server, skopeo};
use table::{Row, State, table, wrong};

/// The rows, and the turn that each has: the table costs much time, so a day runs a Docker and a Podman, or one of
/// them without root and another Docker.
const ROWS: [(&str, Kind, Turn); 12] = [
    ("trixie", Kind::Podman, Turn::Day(0)),
    ("sid", Kind::Podman, Turn::Day(1)),
    ("bookworm", Kind::Podman, Turn::Day(2)),
    ("trixie", Kind::Docker, Turn::Day(1)),
    ("trixie", Kind::DockerContainerd, Turn::Day(2)),
    ("sid", Kind::Docker, Turn::Day(3)),
    ("sid", Kind::DockerContainerd, Turn::Day(4)),
    ("bookworm", Kind::Docker, Turn::Day(0)),
    ("trixie", Kind::RootlessPodman, Turn::Day(3)),
    ("sid", Kind::RootlessPodman, Turn::Never),
    ("trixie", Kind::RootlessDocker, Turn::Day(4)),
    ("sid", Kind::RootlessDocker, Turn::Never),
];

/// The days on which a row runs by default.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// The remainder of their number since 1970.
    Day(u64),
    Never,
}

const TURNS: u64 = 5;

/// Engines that build the changed stacks in both orders even where time is short: BuildKit over the store that
/// new installations have, and Buildah, which does not hash what a step mounts.
const BOTH_ORDERS: [(&str, Kind); 2] = [("sid", Kind::DockerContainerd), ("trixie", Kind::Podman)];

/// How many engines run at a time. Three take as long on two cores.
const AT_A_TIME: usize = 2;

type Roots = BTreeMap<&'static str, Result<PathBuf, String>>;

#[test]
fn every_engine_is_right_or_refused_with_a_code() {
    let start = Instant::now();
    let (roots, kit) = prepared();
    print_uncaptured(&format!(
        "root file systems and stacks: {:.0} s",
        start.elapsed().as_secs_f64()
    ));
    let server = Server::start(server::Kind::Open);
    let native = format!("docker://{}/native:1", server.host);
    let layout = format!("oci:{}:1", kit.layout.display());
    skopeo(&["copy", "--dest-tls-verify=false", &layout, &native]);

    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((suite, kind, _)) = ROWS.get(number) else {
                        break;
                    };
                    let row = row(number, *kind, &roots[suite], suite, &kit, &server.host);
                    print_uncaptured(&row.text());
                    done.lock().unwrap().insert(number, row);
                }
            });
        }
    });
    let rows: Vec<Row> = done.into_inner().unwrap().into_values().collect();
    let columns = COLUMNS.map(|(name, _, _)| name);
    let text = table(&columns, &rows);
    print_uncaptured(&format!("\n{text}"));
    if let Some(path) = std::env::var_os("STACKFORGE_ENGINES_TABLE") {
        std::fs::write(path, text).unwrap();
    }

    let mut wrong = wrong(&columns, &rows);
    if std::env::var_os("CI").is_some() {
        // A day's sid may be impossible to install, which says nothing of this program.
        let absent = rows
            .iter()
            .filter(|row| matches!(row.state, State::Absent(_)) && !row.engine.contains("sid"));
        wrong.extend(absent.map(|row| format!("{} did not start", row.engine)));
    }
    assert_eq!(rows.len(), ROWS.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Root file systems and stacks, made at the same time.
fn prepared() -> (Roots, Kit) {
    let lacks = engine::lacks();
    let root = |suite| {
        let mut rows = ROWS.iter().filter(|(of, ..)| *of == suite);
        let wanted = rows.any(|(_, kind, turn)| left_out(&named(*kind, suite), *turn).is_none());
        match &lacks {
            Some(why) => Err(why.clone()),
            None if wanted => roots::root(suite),
            None => Err("left out".to_owned()),
        }
    };
    std::thread::scope(|scope| {
        let suites = ["bookworm", "trixie", "sid"];
        let made = suites.map(|suite| (suite, scope.spawn(move || root(suite))));
        let kit = Kit::new();
        let made = made.map(|(suite, root)| (suite, root.join().unwrap()));
        (Roots::from(made), kit)
    })
}

fn row(
    number: usize,
    kind: Kind,
    root: &Result<PathBuf, String>,
    suite: &str,
    kit: &Kit,
    registry: &str,
) -> Row {
    let nameless = named(kind, suite);
    let absent = |why: &str| {
        support::left_out(&format!("{nameless}: {why}"));
        Row {
            engine: nameless.clone(),
            state: State::Absent(why.to_owned()),
        }
    };
    if let Some(why) = left_out(&nameless, ROWS[number].2) {
        support::left_out(&format!("{nameless}: {why}"));
        return Row {
            engine: nameless,
            state: State::LeftOut(why),
        };
    }
    let root = match root {
        Ok(root) => root,
        Err(why) => return absent(why),
    };
    let engine = match Engine::start(kind, root, number as u32) {
        Ok(engine) => engine,
        Err(NoEngine::Absent(why)) => return absent(&why),
        Err(NoEngine::Broken(why)) => {
            return Row {
                engine: nameless,
                state: State::Broken(why),
            };
        }
    };
    let name = kind.name(&engine.version);
    let bench = Bench {
        engine,
        kit,
        registry,
        dir: tempfile::tempdir().unwrap(),
        row: format!("row{number}-{}", std::process::id()),
        both_orders: all_have_turns() || BOTH_ORDERS.contains(&(suite, kind)),
    };
    let cells = bench.cells();
    let state = match bench.engine.end() {
        Ok(()) => State::Ran(cells),
        Err(left) => State::Broken(left),
    };
    Row {
        engine: name,
        state,
    }
}

/// The name of a row whose engine did not say its version.
fn named(kind: Kind, suite: &str) -> String {
    kind.name(&format!("of {suite}"))
}

/// Why a row does not run today.
fn left_out(name: &str, turn: Turn) -> Option<&'static str> {
    if let Ok(only) = std::env::var("STACKFORGE_ENGINES_ONLY") {
        let named = only.split(',').any(|words| name.contains(words.trim()));
        return (!named).then_some("STACKFORGE_ENGINES_ONLY leaves it out");
    }
    match turn {
        _ if all_have_turns() || turn == Turn::Day(support::today() % TURNS) => None,
        Turn::Never => Some("left out unless STACKFORGE_TEST_ALL is set"),
        Turn::Day(_) => Some(support::NOT_TODAY),
    }
}

/// Prints where nothing captures it.
fn print_uncaptured(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
