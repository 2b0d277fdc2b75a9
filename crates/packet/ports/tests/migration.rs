//! A guest migrates to another QEMU while its card is in use.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::guest::{cache, machine, raise};
use crate::room::Room;
use crate::running::Running;
use crate::traffic::PATIENCE;

/// Two cards and the host's kernel in one segment.
fn graph(directory: &Path) -> String {
    let mut text = String::from(
        "links = [\"tap.output -> bridge.tap\", \"bridge.tap -> tap.input\", \
         \"old.output -> bridge.old\", \"bridge.old -> old.input\", \
         \"new.output -> bridge.new\", \"bridge.new -> new.input\"]\n\
         [apps.bridge]\nkind = \"bridge\"\n\
         [apps.tap]\nkind = \"tap\"\nname = \"inside\"\nmtu = 1500\n",
    );
    for card in ["old", "new"] {
        let socket = directory.join(card);
        text += &format!("[apps.{card}]\nkind = \"vhost_user\"\nsocket = {socket:?}\n");
    }
    text
}

/// Accepts one connection, and sends it bytes that do not repeat, until `stop` is set. Writes the
/// same bytes to `copy`.
fn serve(room: &Room, copy: File, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    let listener = room.run(|| TcpListener::bind("10.0.0.1:7777").unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let (mut copy, mut word) = (copy, 1_u64);
        while !stop.load(Ordering::Relaxed) {
            let bytes: Vec<u8> = (0..4096)
                .flat_map(|_| {
                    // xorshift64 (Marsaglia, 2003)
                    word ^= word << 13;
                    word ^= word >> 7;
                    word ^= word << 17;
                    word.to_le_bytes()
                })
                .collect();
            stream.write_all(&bytes).unwrap();
            copy.write_all(&bytes).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn guest_migrates_in_the_middle_of_a_transfer() {
    for packed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let Some(room) = Room::new() else { return };
        let running = Running::new(&room, &graph(directory.path()));
        room.ip("address add 10.0.0.1/24 dev inside");
        // With packed rings the guest does not announce itself, so QEMU asks the back end to do it.
        let announces = if packed { "off" } else { "on" };
        let announces = format!("virtio-net-device.guest_announce={announces}");
        let announces = ["-global", &announces];
        let old = machine(directory.path(), "old", "old", 1, packed).extra_args(announces);
        let old = old.start(&cache()).unwrap();
        old.wait_ready(PATIENCE).unwrap();
        raise(&old);
        let sent = directory.path().join("sent");
        let stop = Arc::new(AtomicBool::new(false));
        let server = serve(&room, File::create(&sent).unwrap(), Arc::clone(&stop));
        let fetch = "(nc 10.0.0.1 7777 </dev/null | sha256sum >/tmp/sum) >/dev/null 2>&1 &";
        assert!(old.run(fetch).unwrap().is_success());
        running.until("old/connections", |count| count == 1);

        let socket = directory.path().join("migration");
        let new = machine(directory.path(), "new", "new", 1, packed).extra_args(announces);
        let new = new.incoming(&socket).start(&cache()).unwrap();
        new.wait_started(PATIENCE).unwrap();
        old.migrate(&socket, PATIENCE).unwrap();
        drop(old);
        new.wait_ready(PATIENCE).unwrap();
        // Frames now come through the new card.
        let link = "bridge.new -> new.input/packets";
        let before = running.counter(link);
        running.until(link, |count| count > before + 100);
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();

        let begin = Instant::now();
        let got = loop {
            let got = new.run("cat /tmp/sum").unwrap().text();
            if !got.is_empty() {
                break got;
            }
            assert!(begin.elapsed() < PATIENCE, "no sum");
            std::thread::sleep(Duration::from_millis(50));
        };
        let wanted = Command::new("sha256sum").arg(&sent).output().unwrap();
        let wanted = String::from_utf8(wanted.stdout).unwrap();
        assert_eq!(got.split(' ').next(), wanted.split(' ').next(), "{packed}");
        assert_eq!(running.counter("old/ring_faults"), 0);
        assert_eq!(running.counter("new/ring_faults"), 0);
        let announcements = running.counter("new/announcements");
        assert_eq!(announcements > 0, packed, "{announcements}");
    }
}
