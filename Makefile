# What there is to do here: `make help`.

CARGO ?= cargo
CONFIG ?= config/quickstart.toml
URL ?= http://127.0.0.1:8080/

.DEFAULT_GOAL := help
.PHONY: help run test lint fmt pictures bench bench-compare bench-instructions

help: ## Show this list
	@printf 'tidegate, a reverse proxy with rate limiting built in\n\n'
	@bold=; plain=; if [ -t 1 ]; then bold=$$(printf '\033[1m'); plain=$$(printf '\033[0m'); fi; \
	awk -F ':.*## ' -v b="$$bold" -v p="$$plain" \
	  '/^[a-z-]+:.*## / { printf "  %smake %-19s%s %s\n", b, $$1, p, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: CONFIG=%s, CARGO=%s\n' '$(CONFIG)' '$(CARGO)'

# A debug build: it is there sooner than an optimised one, and quick enough to look around.
run: ## Build, then serve config/quickstart.toml on 127.0.0.1:8080
	@scripts/setup cc
	@$(CARGO) build --locked
	@printf '\nServing %s. Try it from another shell; stop with Ctrl-C:\n\n' '$(CONFIG)'
	@printf '    curl -i %s\n' '$(URL)'
	@printf '    for i in $$(seq 10); do curl -s -o /dev/null -w "%%{http_code} " %s; done; echo\n\n' '$(URL)'
	@exec $(CARGO) run --locked --quiet -- run -c '$(CONFIG)'

test: ## Install what is missing, then check and test everything
	@scripts/setup cc curl h2load openssl redis-server rustfmt clippy
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --document-private-items
	$(CARGO) test --locked --doc
	$(CARGO) test --locked --lib --bins --tests --no-fail-fast

lint: ## Check format, lints, documentation and shell scripts
	@scripts/setup cc rustfmt clippy shellcheck
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --document-private-items
	shellcheck scripts/setup benches/compare.sh .ci/run

fmt: ## Format the code
	@scripts/setup rustfmt
	$(CARGO) fmt

pictures: ## Draw the pictures of docs/algorithms.md again
	@scripts/setup cc
	@$(CARGO) build --locked
	@cd docs/pictures && grep -v '^#' list.txt | while IFS=: read -r name args; do \
	  printf 'docs/pictures/%s\n' "$$name"; \
	  $(CARGO) run --locked --quiet -- simulate $$args </dev/null >"$$name" || exit 1; \
	done

bench: ## Measure the parts: one step, a route match, a key, a take
	@scripts/setup cc
	$(CARGO) bench --locked --bench parts --bench stores

bench-compare: ## Measure side by side with nginx and HAProxy (four minutes, after a release build)
	@benches/compare.sh

bench-instructions: ## Count instructions per request (needs valgrind; a minute after a release build)
	@benches/instructions.py
