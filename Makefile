# Everything a contributor does. `make run` needs a Rust toolchain and a C compiler (SQLite is built from source); the rest
# says what it installs.

CARGO ?= cargo

# Runs a command with the servers of scripts/services, and takes them down after it, whatever came of it.
WITH_SERVICES = trap 'scripts/services down' EXIT; trap 'exit 130' INT TERM; \
	scripts/services up && services=$$(scripts/services env) && eval "$$services" &&

.PHONY: run demo dist dist-test deploy-test fleet-test test model lint bench bench-peers seeds idle-long load-long changes-under-load agents-long freshness-long torture torture-database torture-database-planted torture-histories-planted histories nine attack apps fuzz tools test-bodies

# Both build with the profile `quick`, in half the CPU time of `--release`; its server is somewhat slower.
run:
	$(CARGO) run --profile quick --bin forebay -- serve --example codes

demo:
	$(CARGO) run --profile quick --bin forebay -- demo

# Every test: units, properties, contract, faults, crashes (three rounds), on real servers of every kind.
test: tools
	@export FOREBAY_FSYNC=off RUST_BACKTRACE=0; $(WITH_SERVICES) FOREBAY_BIN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/forebay && export FOREBAY_BIN && $(CARGO) test --workspace --no-fail-fast && \
	FOREBAY_TEST_FOLLOW=triggers $(CARGO) test --workspace --test stores -- follow && \
	FOREBAY_TEST_FOLLOW=logical $(CARGO) test --workspace --test contract -- shop && \
	FOREBAY_TEST_BODIES=later $(CARGO) test --workspace --test contract

# Ten thousand random histories of memory beside a database that others write to, for each of three databases; `make test` runs
# 128 of each. About four minutes.
model:
	RUST_BACKTRACE=0 FOREBAY_MODEL_CASES=10000 $(CARGO) test --workspace --test follow -- memory_becomes

# Bodies of 1 GiB through the proxy, instead of the 64 MiB of `make test`.
test-bodies: tools
	FOREBAY_BODY_MIB=1024 $(CARGO) test --workspace --test front -- bodies

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) check --workspace --features planted

# The figures of docs/performance.md: `make bench`, or `make bench ROWS="1 2 4"`.
bench:
	@scripts/install-tools bench
	$(CARGO) build --release --workspace
	@$(WITH_SERVICES) $(CARGO) run --release --bin forebay-bench -- $(ROWS)

# The codes routes of Forebay, Cpeak, Fastify and Express side by side: a table, and one HTML page in bench/results. Needs Node 20; about 20 minutes, `make bench-peers QUICK=--quick` about 4.
bench-peers: tools
	npm ci --prefix peers --no-audit --no-fund
	$(CARGO) build --release --workspace
	$(CARGO) run --release --bin forebay-bench -- --peers $(QUICK)

# The documents that Forebay comes from, as published, theirs run here, ours run here: docs/seeds.md, in about 15 minutes on a machine that does nothing
# else; `make seeds QUICK=--quick` takes about 4 and writes bench/results/seeds.md. Needs root (control groups); installs Go, a JDK and Maven.
seeds: tools
	@scripts/install-tools bench
	@scripts/install-peers
	$(CARGO) build --release --workspace
	@$(WITH_SERVICES) FOREBAY_TEST_POSTGRES= $(CARGO) run --release --bin forebay-bench -- --seeds $(QUICK)

# An event stream and a WebSocket that are silent for five minutes pass through a proxy without settings. `make test` has them silent for a minute.
idle-long: tools
	FOREBAY_IDLE_SECONDS=300 $(CARGO) test --workspace --test front -- patience

# Half an hour of `forebay load` at full rate: its memory stays within 5 %. `make test` does the same for seconds.
load-long: tools
	$(CARGO) build --release --bin forebay
	FOREBAY_BIN=$(CURDIR)/target/release/forebay FOREBAY_LOAD_SECONDS=1800 $(CARGO) test --workspace --test load -- --nocapture memory

# 50,000 requests a second over HTTP/1.1, HTTP/1.1 with TLS and HTTP/2, a minute each, while configs, certificates and
# the binary change again and again: it fails when a request does. `make test` does the same with a thousand a second.
changes-under-load: tools
	$(CARGO) build --release --bin forebay
	FOREBAY_BIN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/forebay FOREBAY_CHANGES_RATE=$${FOREBAY_CHANGES_RATE:-50000} \
	FOREBAY_CHANGES_SECONDS=$${FOREBAY_CHANGES_SECONDS:-60} \
	$(CARGO) test --workspace --test front -- --nocapture --test-threads 1 changes::

# 60 testers in 60 network namespaces hold 100,000 connections open for ten minutes: what they count is what the servers
# count, also with three of them killed; 25 minutes in all. Needs root, and as many servers as its limit of open files
# asks for: one of 110,000, six of 20,000. `make test` has 6 testers and 600 connections for some seconds.
agents-long: tools
	$(CARGO) build --release --bin forebay
	ulimit -n $$(ulimit -H -n) && FOREBAY_BIN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/forebay FOREBAY_FLEET_AGENTS=$${FOREBAY_FLEET_AGENTS:-60} \
	FOREBAY_FLEET_CONNECTIONS=$${FOREBAY_FLEET_CONNECTIONS:-100000} FOREBAY_FLEET_RATE=$${FOREBAY_FLEET_RATE:-6000} \
	FOREBAY_FLEET_SECONDS=$${FOREBAY_FLEET_SECONDS:-600} \
	$(CARGO) test --workspace --test load -- --nocapture --test-threads 1 fleet

# One poisoned row, table, trigger or lock of each kind beside nine healthy tables: others' commits to the nine are served within
# 100 ms (p99), their writes drained within 2 s. Row 35 of docs/performance.md; about 4 minutes. `make test` has a bar of 1 s.
nine: tools
	$(CARGO) build --release --bin forebay
	@export FOREBAY_BIN=$(CURDIR)/target/release/forebay FOREBAY_FRESH_MS=100 FOREBAY_FRESH_COMMITS=20; $(WITH_SERVICES) \
	$(CARGO) test --workspace --test schemas -- --nocapture --test-threads 1 poisoned && \
	$(CARGO) test --workspace --test stores -- --nocapture --test-threads 1 stopped_sets

# Attacks that take memory: what each reaches beside the bound of its limits, and a normal client's percentiles beside it, with the
# access log on and off: docs/attacks.md, in about 15 minutes. Needs a limit of 20,000 open files and 8 GiB. `make test` has smaller limits;
# FOREBAY_ATTACK_ROWS="slow bodies" selects rows.
attack: tools
	$(CARGO) build --release --bin forebay
	FOREBAY_BIN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/forebay FOREBAY_ATTACK=long FOREBAY_ATTACK_PAGE=$(CURDIR)/docs/attacks.md \
	$(CARGO) test --workspace --test attack -- --nocapture

# Applications from their registries, unmodified, alone and beside a server: they say and log the same, each GET is equal to the
# database within 1 s, nothing of ours is left; about 10 minutes. `make test` takes the first steps of Wagtail.
APPS ?= wagtail synapse pocketbase
apps: tools
	@$(WITH_SERVICES) export FOREBAY_APPS="$(APPS)" FOREBAY_APPS_FRESH_MS=1000 FOREBAY_PROOF="$(CURDIR)/docs/proofs.tsv|$$(date +%F)|$$(git rev-parse --short HEAD)" && \
	$(CARGO) test --workspace --test schemas -- --nocapture --test-threads 1 apps::

# A million reads and ten thousand writes through two servers, by each promise, one server cut off for 10 s: what the readers saw is printed.
# `make test` does the same with some thousand.
freshness-long: tools
	$(CARGO) build --release --bin forebay
	@$(WITH_SERVICES) FOREBAY_BIN=$(CURDIR)/target/release/forebay FOREBAY_READS=$${FOREBAY_READS:-1000000} $(CARGO) test --workspace --test cache -- --nocapture --test-threads 1 never_older

# Fifty rounds of kill -9 under full write load.
torture:
	@$(WITH_SERVICES) FOREBAY_CRASH_ROUNDS=50 $(CARGO) test --workspace --test crash -- --nocapture

# A thousand rounds of everything that can go wrong before a PostgreSQL that is there already; `make test` does fifty. A failure prints its seed, and
# FOREBAY_TORTURE_SEED=N make torture-database repeats that round.
torture-database:
	@$(WITH_SERVICES) FOREBAY_TORTURE_ROUNDS=$${FOREBAY_TORTURE_ROUNDS:-1000} FOREBAY_TORTURE_SHARD_ROUNDS=$${FOREBAY_TORTURE_SHARD_ROUNDS:-1000} $(CARGO) test --workspace --test torture -- --nocapture

# Whether the torture finds what it is for: a server with one bug at a time must fail within fifty rounds.
PLANTED ?= commit-taken-for-failed whole-row-update outcome-judged-again letter-cannot-be-written position-never-checked \
	position-from-the-commit place-before-the-rows fetch-without-snapshot old-tag-forgotten
torture-database-planted:
	$(CARGO) build --workspace --bin forebay --features planted
	cp $${CARGO_TARGET_DIR:-target}/debug/forebay $${CARGO_TARGET_DIR:-target}/forebay-planted
	$(CARGO) build --workspace --bin forebay
	@$(WITH_SERVICES) export FOREBAY_BIN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/forebay-planted && for bug in $(PLANTED); do \
		FOREBAY_PLANTED=$$bug FOREBAY_TORTURE_ROUNDS=50 $(CARGO) test --workspace --test torture -- --nocapture nothing_is || exit 1; \
	done

# Whether histories of keys find a server that says of a write of unknown outcome that it was not done.
HISTORIES_PLANTED ?= unknown-told-as-undone
torture-histories-planted:
	$(CARGO) build --workspace --bin forebay --features planted
	cp $${CARGO_TARGET_DIR:-target}/debug/forebay $${CARGO_TARGET_DIR:-target}/forebay-planted
	$(CARGO) build --workspace --bin forebay
	@$(WITH_SERVICES) export FOREBAY_BIN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/forebay-planted && for bug in $(HISTORIES_PLANTED); do \
		FOREBAY_PLANTED=$$bug FOREBAY_HISTORY_ROUNDS=20 $(CARGO) test --workspace --test torture -- --nocapture histories_of || exit 1; \
	done

# Random histories beside each kind of following, and on Redis (tests/schemas/histories.rs), ROUNDS of each; appends what came of them to docs/proofs.tsv.
# FOREBAY_HISTORY_SEED=N begins with that seed.
ROUNDS ?= 1000
histories:
	@$(WITH_SERVICES) export FOREBAY_HISTORY_ROUNDS=$(ROUNDS) FOREBAY_PROOF="$(CURDIR)/docs/proofs.tsv|$$(date +%F)|$$(git rev-parse --short HEAD)" && \
	$(CARGO) test --workspace --test schemas -- --nocapture histories

# Five minutes a target; needs a nightly toolchain.
fuzz: tools
	scripts/fuzz 300

tools:
	@scripts/install-tools

# What is shipped, in target/dist-packages: a static binary (stripped, reproducible), a .deb, an image, man pages, completions.
dist:
	packaging/build

# Packs it twice and compares, then installs, starts, upgrades and removes it in a Debian of its own; needs root. FOREBAY_BIN=target/debug/forebay
# takes that binary instead of the release.
dist-test:
	packaging/test.sh

# The machines of deploy/terraform, checked and planned without an account; needs terraform.
deploy-test:
	deploy/test.sh

# A server, PostgreSQL, a Valkey cluster and testers on machines made of namespaces, by Terraform and Ansible, and
# deploy/bench.sh from price to end; needs root and terraform. FOREBAY_BIN names the binary, else that of `make dist`.
fleet-test:
	deploy/test/run
