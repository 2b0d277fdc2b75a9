//! Output of any length that comes while a command runs in a guest.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_vm::shell::WINDOW_BYTES;
use carina_vm::{CommandLimits, Finish, Stream};

use crate::support::{machine, up};

static NEVER: AtomicBool = AtomicBool::new(false);
const UNTIL: CommandLimits<'static> = CommandLimits {
    limit: Duration::from_secs(500),
    is_cancelled: &NEVER,
};
/// More than an answer of one piece ever held; an emulated port carries some 150 kB a second.
const BYTES: usize = 8 << 20;

/// Bytes as `yes 0123456789` writes them.
fn expected(at: usize) -> u8 {
    b"0123456789\n"[at % 11]
}

#[test]
fn output_comes_whole_and_a_reader_that_goes_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("a", directory.path());
    let vm = up(machine, &cache);
    let (mut bytes, mut longest, mut errors) = (0, 0, Vec::new());
    let mut sink = |stream: Stream, piece: &[u8]| {
        longest = longest.max(piece.len());
        match stream {
            Stream::Stdout => {
                assert!(
                    (0..piece.len())
                        .all(|candidate| piece[candidate] == expected(bytes + candidate))
                );
                bytes += piece.len();
            }
            Stream::Stderr => errors.extend_from_slice(piece),
        }
        ControlFlow::Continue(())
    };
    let script =
        format!("echo begins >&2; yes 0123456789 | head -c {BYTES}; echo ends >&2; exit 7");
    std::thread::scope(|scope| {
        // Another command runs meanwhile.
        let other = scope.spawn(|| vm.run("echo other").unwrap().text());
        let began = Instant::now();
        let finish = vm.stream(&script, UNTIL, &mut sink).unwrap();
        eprintln!("{BYTES} bytes in {:?}", began.elapsed());
        assert_eq!(finish, Finish::Exited(7));
        assert_eq!(other.join().unwrap(), "other");
    });
    assert_eq!((bytes, &errors[..]), (BYTES, &b"begins\nends\n"[..]));
    assert!(longest <= WINDOW_BYTES);

    let runs = |name: &str| vm.run(&format!("pidof {name}")).unwrap().is_success();
    // A reader that goes, one that is slow, and one that gives up.
    let mut goes = |_: Stream, _: &[u8]| ControlFlow::Break(());
    assert_eq!(
        vm.stream("yes", UNTIL, &mut goes).unwrap(),
        Finish::Cancelled
    );
    assert!(!runs("yes"), "the command runs on");
    let mut taken = 0;
    let mut slow = |_: Stream, piece: &[u8]| {
        taken += piece.len();
        std::thread::sleep(Duration::from_millis(500));
        ControlFlow::Continue(())
    };
    let short = CommandLimits {
        limit: Duration::from_secs(3),
        ..UNTIL
    };
    assert_eq!(
        vm.stream("yes", short, &mut slow).unwrap(),
        Finish::TimedOut
    );
    // A slow reader has slowed the command.
    assert!(taken <= 8 * WINDOW_BYTES, "{taken}");
    assert!(!runs("yes"), "the command runs on");
    let is_cancelled = AtomicBool::new(false);
    let until = CommandLimits {
        is_cancelled: &is_cancelled,
        ..UNTIL
    };
    let mut cancels = |_: Stream, _: &[u8]| {
        is_cancelled.store(true, Ordering::Release);
        ControlFlow::Continue(())
    };
    let silent = "echo begins; exec sleep 1234";
    assert_eq!(
        vm.stream(silent, until, &mut cancels).unwrap(),
        Finish::Cancelled
    );
    assert!(!runs("sleep"), "the command runs on");
}
