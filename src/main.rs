fn main() -> std::process::ExitCode {
    // A sandbox's process is this program too, and it must not have started a thread yet.
    if let Some(code) = stackforge_sandbox::child_main() {
        return code;
    }
    stackforge::cli::main()
}
