//! Ends a command's work on a signal: Ctrl-C, SIGTERM, the end of the terminal.

use super::output::print_message;
use super::screen;
use stackforge_types::Cancel;
use stackforge_types::system::ignores_hangup;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;

/// Cancels the work on the first Ctrl-C, and exits at once on the second. SIGHUP, at the end of a terminal or
/// an ssh session, acts like Ctrl-C, except for a process that was started by `nohup`.
///
/// Returns a handle that ends this, for work that goes on with signals of its own.
pub(super) fn stop_on_signal(cancel: &Cancel) -> Option<AbortHandle> {
    let cancel = cancel.clone();
    // Install the handlers now, not when the task first runs.
    let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(interrupt), signal(terminate)) else {
        return None;
    };
    let mut hangup = if ignores_hangup() {
        None
    } else {
        signal(SignalKind::hangup()).ok()
    };
    let waiting = tokio::spawn(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = hung_up => {}
        }
        print_message("stopping; once more to stop at once\n");
        cancel.cancel();
        let _ = interrupt.recv().await;
        screen::end();
        std::process::exit(130);
    });
    Some(waiting.abort_handle())
}
