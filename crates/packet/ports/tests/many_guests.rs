//! The largest number of guests that a process must serve. Their front ends create the sockets, as
//! QEMU does for snabbnfv.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use crate::front_end::{FEATURES, FrontEnd, PACKED};
use crate::room::Room;
use crate::running::Running;
use crate::traffic::PATIENCE;

const GUESTS: usize = 64;

fn mac(guest: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, guest as u8]
}

/// All guests' cards behind one switch, two guests per VLAN.
fn graph(directory: &Path) -> String {
    let (mut links, mut ports, mut apps) = (String::new(), String::new(), String::new());
    for guest in 0..GUESTS {
        let socket = directory.join(guest.to_string());
        links +=
            &format!("\"g{guest}.output -> mux.g{guest}\",\"mux.g{guest} -> g{guest}.input\",");
        ports += &format!(
            "{{ name = \"g{guest}\", mac = \"52:54:00:00:00:{guest:02x}\", vlan = {} }},",
            1 + guest / 2
        );
        apps += &format!(
            "[apps.g{guest}]\nkind = \"vhost_user\"\nsocket = {socket:?}\nclient = true\n"
        );
    }
    format!("links = [{links}]\n[apps.mux]\nkind = \"mac_mux\"\nports = [{ports}]\n{apps}")
}

/// Waits until the back end connects to a guest's socket.
fn accept(listener: &UnixListener, guest: usize) -> FrontEnd {
    listener.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    let socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(_) => assert!(
                begin.elapsed() < PATIENCE,
                "guest {guest}: nothing connects"
            ),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    socket.set_nonblocking(false).unwrap();
    let packed = if guest.is_multiple_of(3) { PACKED } else { 0 };
    FrontEnd::over(socket).set_up(FEATURES | packed)
}

#[test]
fn sixty_four_guests_share_a_process_that_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let Some(room) = Room::new() else { return };
    let listeners: Vec<UnixListener> = (0..GUESTS)
        .map(|guest| UnixListener::bind(directory.path().join(guest.to_string())).unwrap())
        .collect();
    let text = graph(directory.path());
    for round in 0..2_u8 {
        let running = Running::new(&room, &text);
        let mut guests: Vec<FrontEnd> = listeners
            .iter()
            .enumerate()
            .map(|(guest, listener)| accept(listener, guest))
            .collect();
        for guest in &mut guests {
            guest.gives_buffer(0, 2048);
        }
        // Each guest sends to the other one in its VLAN. All send before the first one receives.
        for (from, guest) in guests.iter_mut().enumerate() {
            guest.sends(0, &frame(from, from ^ 1, round));
        }
        for (to, guest) in guests.iter_mut().enumerate() {
            let wanted = frame(to ^ 1, to, round);
            assert_eq!(guest.returned(0).written as usize, 12 + wanted.len());
            let bytes = guest.bytes(0, 12 + wanted.len());
            assert_eq!(bytes[12..], wanted, "guest {to}");
        }
        for guest in 0..GUESTS {
            running.until(&format!("g{guest}/is_connected"), |count| count == 1);
            assert_eq!(running.counter(&format!("g{guest}/ring_faults")), 0);
        }
        // The graph must end before the guests, because it would connect to their sockets again.
        drop(running);
    }
}

/// A frame whose length and contents identify sender and receiver.
fn frame(from: usize, to: usize, round: u8) -> Vec<u8> {
    let mut frame = [mac(to), mac(from)].concat();
    frame.extend([0x88, 0xb5, round]);
    frame.resize(60 + from, from as u8);
    frame
}
