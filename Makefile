# What a user types. Needs rust (rustup reads rust-toolchain.toml), git and make; fetches the rest
# from the distribution's archive as root or by sudo, or says what to install.

TARGET := x86_64-unknown-linux-gnu
CARINA := target/$(TARGET)/release/carina

# Where `make install` puts things; DESTDIR goes in front, as packagers have it.
PREFIX := /usr/local
LIBRARIES := target/$(TARGET)/release/c

.PHONY: build demo test check install packages test-packages clean

# Static programs (scripts/static-program): they run on this host and in any guest.
build: packages
	@echo "Compiling the programs. The first time takes about 8 minutes on two processors."
	cargo build --locked --release --target $(TARGET) --package carina-cli

# The program, and librina for C programs: cc prog.c $(pkg-config --cflags --libs rina).
install: build
	cargo rustc --locked --release --target $(TARGET) --package carina-client --lib \
		--crate-type staticlib
	scripts/librina target/$(TARGET)/release/libcarina_client.a $(LIBRARIES) $(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include/rina \
		$(DESTDIR)$(PREFIX)/lib/pkgconfig
	install $(CARINA) $(CARINA)-guest $(CARINA)-tools $(DESTDIR)$(PREFIX)/bin/
	install -m 644 include/rina/api.h $(DESTDIR)$(PREFIX)/include/rina/
	install -m 644 $(LIBRARIES)/librina.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(LIBRARIES)/librina.so.1 $(DESTDIR)$(PREFIX)/lib/
	ln -sf librina.so.1 $(DESTDIR)$(PREFIX)/lib/librina.so
	install -m 644 $(LIBRARIES)/rina.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig/

# Boots a VM, pings it, and draws figure 4a of S. Vrijders and others, "Reducing Complexity of
# Virtual Machine Networking": fig4a.svg, fig4a.json.
demo: packages
	@echo "Compiling what the demo needs, about 4 minutes on two processors; then it runs for about"
	@echo "a minute and a half. \"make install\" compiles and installs everything."
	cargo build --locked --release --target $(TARGET) --package carina-cli --no-default-features
	$(CARINA) demo --out .

# Every test; the last line is `N passed, N failed, N skipped`.
test: test-packages
	cargo xtask test

# Everything that is checked without running the product.
check: packages
	cargo fmt --all --check
	cargo xtask tidy
	cargo xtask deps
	cargo clippy --locked --workspace --all-targets -- -D warnings
	for only in "" packet vnet; do cargo clippy --locked --package carina-cli \
		--no-default-features --features "$$only" -- -D warnings || exit 1; done
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

# What building and guests need; what tests need.
packages:
	@scripts/packages

test-packages:
	@scripts/packages tests

clean:
	cargo clean
