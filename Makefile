# Targets for users and developers: `make help` lists them.

CARGO ?= cargo

# Where the pinned toolchain is installed as `stable` only, rustup need not download it a second time.
PINNED := $(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
HAS_PINNED := $(shell rustup toolchain list 2>/dev/null | grep -c '^$(PINNED)')
STABLE_IS_PINNED := $(shell RUSTUP_TOOLCHAIN=stable rustc --version 2>/dev/null | grep -c ' $(PINNED) ')
ifeq ($(HAS_PINNED)$(STABLE_IS_PINNED),01)
export RUSTUP_TOOLCHAIN := stable
endif
CONFIG ?= config/quickstart.toml
URL ?= http://127.0.0.1:8080/
# Tests wait for sockets, processes and Redis most of the time, so more of them run at a time than there are CPUs.
export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
# Tools that scripts/setup does not install in directories of the system.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)
# Arguments for cargo that choose features, such as --no-default-features.
FEATURES ?=

# Where `make install` puts a release. DESTDIR is for packages: it is prepended to each path, and not written into files.
PREFIX ?= /usr/local
DESTDIR ?=
BINDIR ?= $(PREFIX)/bin
SHAREDIR ?= $(PREFIX)/share
DOCDIR ?= $(SHAREDIR)/doc/tidegate
MANDIR ?= $(SHAREDIR)/man/man1
MAN5DIR ?= $(SHAREDIR)/man/man5
BASHDIR ?= $(SHAREDIR)/bash-completion/completions
ZSHDIR ?= $(SHAREDIR)/zsh/site-functions
FISHDIR ?= $(SHAREDIR)/fish/vendor_completions.d
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
LOGROTATEDIR ?= $(SYSCONFDIR)/logrotate.d
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
BUILD := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(BUILD)/release/tidegate
# The binary to install; another one than the release is installed as it is.
BINARY ?= $(RELEASE)
# The licences of the dependencies, for packages; they are installed if the file exists.
NOTICES ?=
# What a release is built for; empty for this machine. x86_64-unknown-linux-musl and aarch64-unknown-linux-musl are static.
TARGET ?=
# How `make install` writes files: readable by all users, and with paths that follow PREFIX.
WRITE := umask 022 &&
ADAPT := $(WRITE) sed -e 's|/usr/local/bin/|$(BINDIR)/|g' -e 's|/etc/tidegate/|$(SYSCONFDIR)/tidegate/|g'
SOURCES := build.rs Cargo.toml Cargo.lock rust-toolchain.toml $(shell find src crates lua -type f)

.DEFAULT_GOAL := help
.PHONY: help run demo test test-all check lint fmt build release-pgo install uninstall release deb reference docs pictures bench bench-compare bench-envoy bench-overload proof bench-growth bench-instructions

help: ## Show this list
	@printf 'tidegate, a reverse proxy with rate limiting built in\n\n'
	@bold=; plain=; if [ -t 1 ]; then bold=$$(printf '\033[1m'); plain=$$(printf '\033[0m'); fi; \
	awk -F ':.*## ' -v b="$$bold" -v p="$$plain" \
	  '/^[a-z-]+:.*## / { printf "  %smake %-19s%s %s\n", b, $$1, p, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: CONFIG=%s, PREFIX=%s, DESTDIR=%s, CARGO=%s\n' '$(CONFIG)' '$(PREFIX)' '$(DESTDIR)' '$(CARGO)'

# A debug build: it is compiled faster than a release, and fast enough to try things.
run: ## Build, then serve config/quickstart.toml on 127.0.0.1:8080
	@scripts/setup cc
	@$(CARGO) build --locked
	@printf '\nServing %s. Try it from another shell; stop with Ctrl-C:\n\n' '$(CONFIG)'
	@printf '    curl -i %s\n' '$(URL)'
	@printf '    for i in $$(seq 10); do curl -s -o /dev/null -w "%%{http_code} " %s; done; echo\n\n' '$(URL)'
	@exec $(CARGO) run --locked --quiet -- run -c '$(CONFIG)'

demo: ## Show tidegate with an API, customers and a crawler, and its page; needs curl and python3
	@scripts/setup cc curl python3
	@$(CARGO) build --locked
	@exec config/demo/run $(BUILD)/debug/tidegate

# The tests that take long or need more than `make test` installs: the beginnings of their names.
NEEDS := $(shell sed -n 's/^\([a-z][a-z_0-9:]*\) .*/\1/p' tests/it/needs.txt)
SKIP_NEEDS := $(addprefix --skip ,$(NEEDS))
COUNT := grep -c ': test$$'

test: ## Run the tests that need Redis, OpenSSL, curl and Python alone (some minutes)
	@scripts/setup cc curl openssl python3 redis-server
	$(CARGO) test --locked --workspace $(FEATURES) --lib --bins --no-fail-fast
	@printf "integration tests without those of tests/it/needs.txt:\n"
	@$(CARGO) test --locked $(FEATURES) --test it --no-fail-fast -- $(SKIP_NEEDS)
	@list='$(CARGO) test --locked --quiet $(FEATURES) --test it -- --list'; \
	all=$$($$list | $(COUNT)); quick=$$($$list $(SKIP_NEEDS) | $(COUNT)); \
	printf '%s of %s integration tests, and the documentation tests, need make test-all\n' $$((all - quick)) $$all

test-all: test ## Run all tests: installs browsers and other proxies (a quarter of an hour)
	@scripts/setup apache browser caddy debhelper django docker-compose envoy fakeroot flask go go-http2 h2load haproxy llm-clients logrotate \
	  mariadb mdbook nginx pebble prometheus rails systemd traefik yaml
	@printf "integration tests of tests/it/needs.txt:\n"
	@$(CARGO) test --locked $(FEATURES) --test it --no-fail-fast -- $(NEEDS)
	$(CARGO) test --locked --workspace $(FEATURES) --doc

check: ## Check format, lints and documentation, as continuous integration does
	@scripts/setup cc rustfmt clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace $(FEATURES) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings --cfg internals' $(CARGO) doc --locked --workspace $(FEATURES) --no-deps --document-private-items

lint: check ## Check also dependencies and shell scripts
	@scripts/setup shellcheck cargo-deny cargo-machete
	$(CARGO) deny --locked check licenses bans sources
	$(CARGO) machete
	shellcheck scripts/setup config/demo/run config/demo/load.sh packaging/build-deb packaging/pgo packaging/release packaging/sbom \
	  packaging/try-package packaging/debian/postinst .ci/run

fmt: ## Format the code
	@scripts/setup rustfmt
	$(CARGO) fmt --all

build: $(RELEASE) ## Build the optimised binary: target/release/tidegate (some minutes)

$(RELEASE): $(SOURCES)
	@scripts/setup cc
	$(CARGO) build --locked --release $(FEATURES)
	@touch '$@'

release-pgo: ## Build it with profile-guided optimisation: target/pgo/tidegate (twice the time)
	@packaging/pgo

# Paths in the units follow PREFIX. The configuration is the quickstart on the address of tidegate.socket, with the admin
# interface on a Unix socket; one that exists is never overwritten. The binary writes its manual pages and completions itself.
# The debug information of a release is beside it, where debuggers and backtraces find it.
install: $(BINARY) ## Install binary, systemd units, manual, completions and an example configuration (PREFIX, DESTDIR)
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(UNITDIR)' '$(DESTDIR)$(SYSUSERSDIR)' '$(DESTDIR)$(TMPFILESDIR)' \
	  '$(DESTDIR)$(DOCDIR)/examples' '$(DESTDIR)$(MANDIR)' '$(DESTDIR)$(MAN5DIR)' '$(DESTDIR)$(BASHDIR)' \
	  '$(DESTDIR)$(ZSHDIR)' '$(DESTDIR)$(FISHDIR)' '$(DESTDIR)$(SYSCONFDIR)/tidegate/tls' '$(DESTDIR)$(LOGROTATEDIR)'
ifeq ($(BINARY),$(RELEASE))
	objcopy --only-keep-debug --compress-debug-sections '$(BINARY)' '$(DESTDIR)$(BINDIR)/tidegate.debug'
	chmod 644 '$(DESTDIR)$(BINDIR)/tidegate.debug'
	objcopy --strip-all --remove-section=.gnu_debuglink --add-gnu-debuglink='$(DESTDIR)$(BINDIR)/tidegate.debug' '$(BINARY)' \
	  '$(DESTDIR)$(BINDIR)/tidegate'
	chmod 755 '$(DESTDIR)$(BINDIR)/tidegate'
else
	install -m 755 '$(BINARY)' '$(DESTDIR)$(BINDIR)/tidegate'
endif
	$(ADAPT) config/tidegate.service >'$(DESTDIR)$(UNITDIR)/tidegate.service'
	$(ADAPT) config/tidegate.socket >'$(DESTDIR)$(UNITDIR)/tidegate.socket'
	$(ADAPT) config/tidegate.sysusers >'$(DESTDIR)$(SYSUSERSDIR)/tidegate.conf'
	$(ADAPT) config/tidegate.tmpfiles >'$(DESTDIR)$(TMPFILESDIR)/tidegate.conf'
	install -m 644 config/tidegate.logrotate '$(DESTDIR)$(LOGROTATEDIR)/tidegate'
	$(WRITE) '$(BINARY)' man '$(DESTDIR)$(MANDIR)'
	mv '$(DESTDIR)$(MANDIR)/tidegate.toml.5' '$(DESTDIR)$(MAN5DIR)/tidegate.toml.5'
	$(WRITE) '$(BINARY)' completions bash >'$(DESTDIR)$(BASHDIR)/tidegate'
	$(WRITE) '$(BINARY)' completions zsh >'$(DESTDIR)$(ZSHDIR)/_tidegate'
	$(WRITE) '$(BINARY)' completions fish >'$(DESTDIR)$(FISHDIR)/tidegate.fish'
	install -m 644 LICENSE LICENSE-APACHE LICENSE-MIT $(wildcard $(NOTICES)) '$(DESTDIR)$(DOCDIR)/'
	install -m 644 config/production.toml config/quickstart.toml config/tidegate.schema.json '$(DESTDIR)$(DOCDIR)/examples/'
	@if [ -e '$(DESTDIR)$(SYSCONFDIR)/tidegate/tidegate.toml' ]; then \
	  printf 'kept %s\n' '$(DESTDIR)$(SYSCONFDIR)/tidegate/tidegate.toml'; \
	else \
	  $(WRITE) sed -e 's/^listen = "127[.]0[.]0[.]1:8080"/listen = "0.0.0.0:80"/' -e 's|127[.]0[.]0[.]1:8080/|127.0.0.1/|' \
	    -e 's|^# For operators.*|# For root and the group tidegate: `tidegate status`, `top`, `keys` and `reload`.|' \
	    -e 's|^listen = "127[.]0[.]0[.]1:9900"|listen = "unix:/run/tidegate/admin.sock"\nmode = "0660"|' \
	    -e 's|^#:schema .*|#:schema $(DOCDIR)/examples/tidegate.schema.json|' \
	    -e 's|config/quickstart.toml|$(SYSCONFDIR)/tidegate/tidegate.toml|' config/quickstart.toml \
	    >'$(DESTDIR)$(SYSCONFDIR)/tidegate/tidegate.toml'; \
	fi

uninstall: ## Remove what `make install` has installed, except the configuration
	rm -f '$(DESTDIR)$(BINDIR)/tidegate' '$(DESTDIR)$(BINDIR)/tidegate.debug' '$(DESTDIR)$(LOGROTATEDIR)/tidegate' '$(DESTDIR)$(UNITDIR)/tidegate.service' '$(DESTDIR)$(UNITDIR)/tidegate.socket' \
	  '$(DESTDIR)$(SYSUSERSDIR)/tidegate.conf' '$(DESTDIR)$(TMPFILESDIR)/tidegate.conf' '$(DESTDIR)$(BASHDIR)/tidegate' \
	  '$(DESTDIR)$(ZSHDIR)/_tidegate' '$(DESTDIR)$(FISHDIR)/tidegate.fish' \
	  '$(DESTDIR)$(MANDIR)/tidegate.1' '$(DESTDIR)$(MANDIR)'/tidegate-*.1 '$(DESTDIR)$(MAN5DIR)/tidegate.toml.5'
	rm -rf '$(DESTDIR)$(DOCDIR)'

release: ## Build what a release has, in target/dist: archives, checksums, SBOM (TARGET=…-musl for a static binary)
	@packaging/release $(TARGET)

deb: $(BINARY) ## Build the Debian package, in target/dist
	@scripts/setup debhelper
	@packaging/build-deb '$(BINARY)' '$(BUILD)/dist' $(NOTICES)

reference: ## Write the tables of docs/configuration and the JSON schema from the keys in src/config
	@scripts/setup cc
	UPDATE=1 $(CARGO) test --locked --test it -- config::generated config::json_schema

# Where `make docs` writes the book.
BOOK ?= $(BUILD)/book

# Pages link to files beside docs, so the book has the directories of the repository; index.html leads to docs/README.md.
docs: ## Build the documentation as a book with search: target/book/index.html
	@scripts/setup mdbook
	rm -rf '$(BOOK)' '$(BOOK).src'
	mkdir -p '$(BOOK).src'
	cp -R docs charts config *.md LICENSE* Dockerfile compose*.yaml '$(BOOK).src'
	cp --parents benches/*.json tests/it/needs.txt '$(BOOK).src'
	mv '$(BOOK).src/docs/book.toml' '$(BOOK).src'
	sed -E -e 's|\]\(\.\./|](|' -e t -e 's|\]\(|](docs/|' docs/SUMMARY.md >'$(BOOK).src/SUMMARY.md'
	target/tools/bin/mdbook build --dest-dir '$(abspath $(BOOK))' '$(BOOK).src'
	printf '<!DOCTYPE html>\n<title>tidegate</title>\n<meta http-equiv="refresh" content="0; url=docs/README.html">\n' >'$(BOOK)/index.html'
	rm -r '$(BOOK).src'

pictures: ## Draw the pictures of the documentation again
	@scripts/setup cc browser curl python3 redis-server
	@$(CARGO) build --locked
	@cd docs/pictures && grep -v '^#' list.txt | while IFS=: read -r name args; do \
	  printf 'docs/pictures/%s\n' "$$name"; \
	  $(CARGO) run --locked --quiet -- simulate $$args </dev/null >"$$name" || exit 1; \
	done
	UPDATE=1 $(CARGO) test --locked --test it -- admin::page_pictures cli::replay_page::the_picture monitoring::demo::the_demo_without

bench: ## Benchmark the parts: an algorithm's step, a route match, a key, a store call, a check of the library
	@scripts/setup cc
	$(CARGO) bench --locked --bench parts --bench stores --bench limits

bench-compare: ## Measure side by side with nginx, HAProxy, and nginx with Lua and Redis (nine minutes, after a release build)
	@python3 -B benches/compare

bench-envoy: ## Measure Envoy's rate-limit service, alone and through Envoy (three minutes, after a release build)
	@scripts/setup cc envoy h2load redis-server
	@python3 -B benches/envoy

bench-overload: ## Measure overload beside HAProxy, Envoy and nginx at three times the capacity (an hour, after a release build)
	@scripts/setup cc envoy haproxy nginx python3
	@python3 -B benches/overload

proof: ## Show what proxies do when Redis dies, freezes and returns, and when four share a limit (six minutes, after a release build)
	@scripts/setup envoy nginx python3 redis-server traefik
	@python3 -B benches/proof

bench-growth: ## Measure how costs grow with routes, limits, keys and more, and draw docs/pictures/growth-*.svg (ten minutes)
	@python3 -B benches/growth

bench-instructions: ## Count instructions per request, and compare with benches/baseline.json (STRICT=1: fail above 3 %)
	@python3 -B benches/instructions
