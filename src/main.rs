fn main() -> std::process::ExitCode {
    // The process that a sandbox runs in is this program, too, and must not have a thread yet.
    if let Some(code) = stackforge_sandbox::child_main() {
        return code;
    }
    stackforge::cli::main()
}
