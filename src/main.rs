//! stackforge: CUDA machine-learning stacks that work, as container images, from one YAML file.

mod cli;

fn main() -> std::process::ExitCode {
    // A sandbox's process is this program too, and it must not have started a thread yet.
    if let Some(code) = stackforge_sandbox::child_main() {
        return code;
    }
    cli::main()
}
