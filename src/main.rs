fn main() -> std::process::ExitCode {
    stackforge::cli::main()
}
