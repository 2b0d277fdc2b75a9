//! The first process of a guest, and the agent that obeys its second serial port.
//!
//! To start another program takes an emulated guest longer than most of what it is asked for, above
//! all one that has just been cloned, whose code is translated as it runs. So this program does by
//! system calls what guests are asked for again and again, and starts a shell for the rest.
//!
//! `carina-vm` compiles these files by themselves, without cargo, into the initramfs of guests;
//! hence the standard library is all that they use.

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
