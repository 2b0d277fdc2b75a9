//! Gives the library the name under which the C library loads it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnss_carina.so.2");
}
