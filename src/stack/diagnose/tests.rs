use super::*;
use proptest::prelude::*;

fn read(log: impl AsRef<[u8]>) -> Vec<Match> {
    let diagnoses = Diagnoses::load(None).unwrap();
    Diagnoser::new(&diagnoses).read(log.as_ref()).unwrap()
}

fn ids(log: impl AsRef<[u8]>) -> Vec<String> {
    read(log).into_iter().map(|m| m.id).collect()
}

const KILLED: &str = "c++: fatal error: Killed signal terminated program cc1plus";

#[test]
fn the_root_cause_hides_its_echoes() {
    let log = format!(
        "error: subprocess-exited-with-error\nninja: build stopped: x.\nexit code: 137\n{KILLED}\n"
    );
    assert_eq!(ids(&log), ["compiler-killed"]);
    assert_eq!(ids(log.replace(KILLED, "")), ["exit-137"]);
    let log = log.replace(KILLED, "").replace("137", "1");
    assert_eq!(ids(&log), ["extension-build-stopped"]);
    assert_eq!(ids(log.replace("ninja", "")), ["package-build-failed"]);
}

#[test]
fn root_causes_are_in_the_order_of_the_log() {
    let skew = "undefined symbol: _ZN3c104goneERKNS_6IValueE";
    let log = format!("{skew}\n{KILLED}\n{skew}\n");
    assert_eq!(ids(&log), ["torch-symbol-skew", "compiler-killed"]);
    let found = read(&log);
    assert_eq!((found[0].line, found[0].count), (1, 2));
    assert!(found[0].cause.contains("`c10::gone(c10::IValue const&)`"));
}

#[test]
fn the_fix_of_a_missing_module_names_its_distribution() {
    for (module, distribution) in [
        ("six", "six"),
        ("sklearn.utils", "scikit-learn"),
        ("google.protobuf.internal", "protobuf"),
        ("cv2", "opencv-python-headless"),
        ("My_module.part", "my-module"),
    ] {
        let found = read(format!("ModuleNotFoundError: No module named '{module}'"));
        assert_eq!(found[0].id, "module-missing");
        let fix = format!("add `{distribution}: auto` to `libraries`");
        assert!(found[0].fix.contains(&fix), "{}", found[0].fix);
    }
}

#[test]
fn different_libraries_are_different_failures_up_to_a_bound() {
    let line = |n: usize| format!("libx{n}.so: cannot open shared object file\n");
    let log: String = (0..100).map(line).collect();
    let found = read(&log);
    assert_eq!(found.len(), 8);
    assert_eq!(found.iter().map(|m| m.count).sum::<u64>(), 100);
}

#[test]
fn what_a_log_is_wrapped_in_does_not_matter() {
    for wrapped in [
        format!("#12 3.456 {KILLED}\r\n"),
        format!(
            "\x1b[31mc++: \x1b[01;31m\x1b[Kfatal error: \x1b[m\x1b[K{}",
            &KILLED[18..]
        ),
        format!("10%\r20%\r{KILLED}"),
        format!("{}{KILLED}{}", "x".repeat(300_000), "y".repeat(300_000)),
        format!("{}\x1b[0m{KILLED}", "\x1b[32mx\x1b[0m".repeat(70_000)),
    ] {
        assert_eq!(ids(&wrapped), ["compiler-killed"], "{:.60}", wrapped);
    }
    let quoted = "g++: error: unrecognized command-line option ‘-std=c++20’";
    assert_eq!(ids(quoted), ["cxx-standard-of-compiler"]);
}

#[test]
fn a_tracebacks_source_is_not_the_message() {
    let log = "    raise ValueError(f\"Unknown CUDA arch ({arch}) or GPU not supported\")\n\
               ValueError: Unknown CUDA arch (9.9) or GPU not supported\n";
    assert_eq!(read(log)[0].line, 2);
}

#[test]
fn what_only_sounds_like_a_failure_is_none() {
    for line in [
        "Killed the old server before starting",
        "test_signal_handling: Killed by test ok",
        "            \"OOMKilled\": false,",
        "-- Looking for ENOSPC in errno.h - found",
        "csrc/pool.cpp:12:3: warning: catching type 'std::bad_alloc' by value",
        "-- Looking for C++ include csignal: SIGILL SIGFPE",
        "exit code: 0",
        "Process completed with exit code 0.",
        "Successfully installed torch-2.14.1 packaging-26.0",
        "-- Found CUDAToolkit: /usr/local/cuda/include (found version 13.0.88)",
        "[ 50%] Building CXX object src/error.cpp.o",
        "Checking whether undefined symbols are allowed in shared libraries - no",
        "#11 DONE 137.0s",
        "error_rate: 0.137 exit",
    ] {
        assert_eq!(ids(line), [""; 0], "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_failure_is_found_wherever_it_stands(
        before in proptest::collection::vec(any::<u8>(), 0..600_000),
        after in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut log = before.clone();
        // A line break ends an unfinished control sequence.
        log.push(b'\n');
        log.extend(KILLED.as_bytes());
        log.push(b'\n');
        log.extend(after);
        let found = read(&log);
        let line = before.iter().filter(|b| **b == b'\n').count() as u64 + 2;
        prop_assert!(found.iter().any(|m| m.id == "compiler-killed" && m.line == line));
    }
}
