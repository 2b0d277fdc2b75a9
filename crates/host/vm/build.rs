//! Compiles the first process of guests (`crates/rina/guest`) to a static program. `src/image.rs`
//! puts it into the initramfs of guests.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let source = Path::new("../../rina/guest/src");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=RUSTC");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--edition=2024", "--crate-name=guest", "--crate-type=bin"])
        .arg(format!("--target={}", variable("TARGET")))
        // A guest has no libraries. It unpacks its initramfs at boot, so a small program saves
        // time.
        .args(["-Ctarget-feature=+crt-static", "-Crelocation-model=static"])
        .args(["-Copt-level=s", "-Clto=fat", "-Ccodegen-units=1"])
        .args(["-Cpanic=abort", "-Cstrip=symbols"])
        .arg("-o")
        .arg(Path::new(&variable("OUT_DIR")).join("guest"))
        .arg(source.join("main.rs"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let done = rustc
        .status()
        .expect("rustc, which cargo names, can be run");
    assert!(done.success(), "the first process of guests: {done}");
}
