//! SIGTERM and SIGINT (Ctrl-C): the first ends the work in order, the second ends the process at once.
//! On SIGUSR2 another process takes over.

use crate::failure::Failure;
use std::process::exit;
use std::sync::mpsc;
use std::thread;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a program that Ctrl-C ended (128 + SIGINT).
pub const INTERRUPTED: u8 = 130;

/// Calls `stop` at the first signal. The signals are caught from the return of this function on.
pub fn on_first(stop: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::from)?;
    let (registered, is_registered) = mpsc::channel();
    let wait = async move {
        let caught =
            signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
        // The receiver waits for exactly this message.
        let (told, signals) = match caught {
            Ok(signals) => (registered.send(Ok(())), Some(signals)),
            Err(error) => (registered.send(Err(error)), None),
        };
        let (Ok(()), Some((mut terminate, mut interrupt))) = (told, signals) else { return };
        next(&mut terminate, &mut interrupt).await;
        stop();
        next(&mut terminate, &mut interrupt).await;
        exit(INTERRUPTED.into());
    };
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || runtime.block_on(wait)).map_err(Failure::from)?;
    is_registered.recv().map_err(Failure::from)?.map_err(Failure::from)
}

/// Calls `ask` at each SIGUSR2, until it returns true. The signal is caught from the return of this
/// function on.
pub fn at_user_signal(mut ask: impl FnMut() -> bool + Send + 'static) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::from)?;
    let inside = runtime.enter();
    let mut asked = signal(SignalKind::user_defined2()).map_err(Failure::from)?;
    drop(inside);
    let wait = move || runtime.block_on(async { while asked.recv().await.is_some() && !ask() {} });
    thread::Builder::new().name("takeover".into()).spawn(wait).map(drop).map_err(Failure::from)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
