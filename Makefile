# What a user types. Needs rust (rustup reads rust-toolchain.toml), git and make; fetches the rest
# from the distribution's archive as root or by sudo, or says what to install.

TARGET := x86_64-unknown-linux-gnu
CARINA := target/$(TARGET)/release/carina

.PHONY: build demo test check packages clean

# One static program: it runs on this host and in any guest.
build: packages
	RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --locked --release --target $(TARGET) --package carina-cli

# Boots a VM, pings it, and draws the paper's figure 4a: fig4a.svg, fig4a.json.
demo: build
	$(CARINA) demo --out .

# Every test; the last line is `N passed, N failed`.
test: packages
	cargo xtask test

# Everything that is checked without running the product.
check: packages
	cargo fmt --all --check
	cargo xtask tidy
	cargo xtask deps
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

packages:
	@scripts/packages

clean:
	cargo clean
