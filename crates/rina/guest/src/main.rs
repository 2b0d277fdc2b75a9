//! The first process of a guest, and the agent that executes commands from the host on the second
//! serial port.
//!
//! In an emulated guest, starting another program takes longer than most commands. This holds above
//! all for a guest that was just cloned, because its code is translated while it runs. So this
//! program executes frequent commands itself by system calls, and starts a shell for the others.
//!
//! `carina-vm` compiles these files, without cargo, for the initramfs of guests. So they use only
//! the standard library.

#![deny(unsafe_code)]

mod agent;
mod base64;
mod cards;
mod command_line;
mod echo;
mod init;
mod netlink;
mod order;
mod port;
mod shell;
mod stream;
mod system;

fn main() {
    match std::env::args().nth(1).as_deref() {
        None if std::process::id() == 1 => init::run(),
        _ => {
            eprintln!("this program is the first process of a guest");
            std::process::exit(2);
        }
    }
}
