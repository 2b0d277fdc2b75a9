# What a user types. Needs rust (rustup reads rust-toolchain.toml), git and make; fetches the rest
# from the distribution's archive as root or by sudo, or says what to install.

TARGET := x86_64-unknown-linux-gnu

# Where `make install` puts things; DESTDIR goes in front, as packagers have it.
export PREFIX := /usr/local
export DESTDIR

# How programs are compiled: release, or dist, which takes longer and makes them smaller.
PROFILE := release
BUILT = target/$(TARGET)/$(PROFILE)

.PHONY: build all demo test check wheel install uninstall package test-package packages test-packages clean

# Static programs (scripts/static-program): they run on this host and in any guest.
build: packages
	@echo "Compiling the programs. The first time takes about 10 minutes on two processors."
	cargo build --locked --release --target $(TARGET) --package carina-cli \
		--package carina-preload --package carina-nss

# All that is installed: programs, librina for C programs, manual pages and completions.
all: packages
	@echo "Compiling everything with profile $(PROFILE). The first time, release takes about 9"
	@echo "minutes on two processors; dist takes some minutes more for each of four programs."
	cargo build --locked --profile $(PROFILE) --target $(TARGET) --package carina-cli \
		--package carina-pages --package carina-preload --package carina-nss
	cargo rustc --locked --profile $(PROFILE) --target $(TARGET) --package carina-client --lib \
		--crate-type staticlib
	@# The program of guests is compiled once more, to be small (profile guest in Cargo.toml).
	if [ $(PROFILE) = dist ]; then \
		cargo build --locked --profile guest --target $(TARGET) --package carina-cli \
			--no-default-features --bin carina-guest && \
		objcopy --remove-section=.eh_frame --remove-section=.eh_frame_hdr \
			target/$(TARGET)/guest/carina-guest $(BUILT)/carina-guest; fi

# cc prog.c $(pkg-config --cflags --libs rina)
install: all
	scripts/install $(BUILT)

uninstall:
	scripts/install --remove

# Debian packages in target/packages; `make package PROFILE=release` compiles faster.
package: PROFILE := dist
package: all
	rm -rf target/packages
	scripts/package $(BUILT) target/packages

# Installs, uses and removes the packages in a new Debian system: as root, from apt's archive.
test-package: PROFILE := dist
test-package: package
	@scripts/packages package
	scripts/test-package target/packages

# Boots a VM, pings it, and draws figure 4a of S. Vrijders and others, "Reducing Complexity of
# Virtual Machine Networking": fig4a.svg, fig4a.json.
demo: packages
	@echo "Compiling what the demo needs, about 3 minutes on two processors; then it runs for about"
	@echo "two minutes. \"make install\" compiles and installs everything."
	cargo build --locked --profile demo --target $(TARGET) --package carina-cli --no-default-features
	target/$(TARGET)/demo/carina demo --out .

# The Python package, one wheel for CPython 3.11 and newer, in target/python/wheels.
wheel:
	bindings/python/wheel

# Every test; the last line is `N passed, N failed, N skipped`.
test: test-packages
	cargo xtask test

# Everything that is checked without running the product.
check: packages
	cargo fmt --all --check
	cargo xtask tidy
	cargo xtask deps
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@# Parts of the programs alone. The packages beside carina-cli turn on those features of
	@# libraries that the workspace has, so that unchanged crates are not checked once more.
	for only in packet vnet; do cargo clippy --locked --package carina-cli --package carina-fuzz \
		--package carina-vnet-roles --package carina-ring-model \
		--no-default-features --features "$$only" -- -D warnings || exit 1; done
	cargo clippy --locked --package carina-cli --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	bindings/check

# What building and guests need; what tests need.
packages:
	@scripts/packages

test-packages:
	@scripts/packages tests

clean:
	cargo clean
