#!/usr/bin/env bash
# Tests what packaging/build makes (`make dist-test`): unit, manifests, alerts and dashboard are judged by their own tools; the .deb is
# installed, started, upgraded with data, removed and purged in a Debian of its own; the image runs in its own root. All servers run in
# a network namespace without a way out. FOREBAY_BIN names the binary, as for packaging/build; without it the release is built.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/target/dist-test
base=$work/debian
[ "$(id -u)" -eq 0 ] || { echo "packaging/test.sh: needs root (chroot, namespaces)" >&2; exit 1; }

passed=${PASSED:-0}
say() { printf '%-68s %s\n' "$1" "$2"; passed=$((passed + 1)); }
fail() { echo "packaging/test.sh: $*" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: expected '$3', got '$2'"; }

# What needs the network, or a compiler.
prepare() {
  local missing=()
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  command -v promtool >/dev/null || missing+=(prometheus)
  command -v ip >/dev/null || missing+=(iproute2)
  command -v man >/dev/null || missing+=(man-db)
  command -v systemd-analyze >/dev/null || missing+=(systemd)
  [ ${#missing[@]} -eq 0 ] || scripts/apt-install "${missing[@]}"
  mkdir -p "$work"
  if [ ! -e "$base.done" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase --include=adduser bookworm "$base" >"$work/debootstrap.log"
    touch "$base.done"
  fi
  if [ ! -x "$work/venv/bin/kubernetes-validate" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install -q kubernetes-validate pyyaml
  fi
  DIST_DIR=$work/dist packaging/build --twice >"$work/build.log"
  say "packed twice from one binary or commit, byte for byte" same
  [ -n "${FOREBAY_BIN:-}" ] || export FOREBAY_BIN=$PWD/target/dist-build/x86_64-unknown-linux-musl/dist/forebay
  ONLY=deb VERSION=9.9.9 DIST_DIR=$work/newer packaging/build >/dev/null
}

unit() {
  local root=$1 score
  systemd-analyze verify --man=no --recursive-errors=no --root="$root" /lib/systemd/system/forebay.service /lib/systemd/system/forebay.socket
  systemd-analyze security --offline=true --threshold=20 packaging/debian/forebay.service >"$work/security.txt" ||
    fail "the unit is exposed by more than 2.0: $work/security.txt"
  score=$(tail -1 "$work/security.txt" | grep -o '[0-9]\+\.[0-9]' | head -1)
  say "systemd-analyze verify; exposure (0 is best, 10 is worst)" "$score"
}

manifests() {
  local file
  for file in packaging/kubernetes/*.yaml; do
    "$work/venv/bin/kubernetes-validate" --strict --quiet "$file"
    "$work/venv/bin/python" -c 'import sys, yaml
maps = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d["kind"] == "ConfigMap"]
assert len(maps) == 1
print(maps[0]["data"]["forebay.toml"])' "$file" >"$work/manifest.toml"
    DATABASE_PASSWORD=x REDIS_PASSWORD=x METRICS_TOKEN=x "$binary" check "$work/manifest.toml" >/dev/null
    say "kubernetes-validate --strict, forebay check of its config" "$file"
  done
}

pages() {
  local page warnings
  for page in "$work"/dist/man/*.gz; do
    warnings=$(MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "$page: $warnings"
  done
  bash -c "source '$work/dist/completions/forebay.bash'; COMP_WORDS=(forebay ser); COMP_CWORD=1; _forebay forebay ser forebay; echo \${COMPREPLY[*]}" |
    grep -qx serve || fail "bash does not complete 'forebay ser'"
  say "man pages without a warning; bash completes 'forebay ser'" "$(ls "$work"/dist/man | wc -l) pages"
}

alerts() {
  promtool check rules packaging/prometheus/forebay.rules.yml >/dev/null
  promtool test rules packaging/prometheus/forebay.rules.test.yml >/dev/null
  # The running server has each metric that dashboard and alerts use, except the conditions, of which a sound server has none.
  local metric
  curl -fsS http://127.0.0.1:9000/metrics >"$work/metrics.txt"
  promtool check metrics <"$work/metrics.txt" >"$work/metrics.lint" 2>&1 || true
  for metric in $(grep -oh '\(forebay\|process\)_[a-z_]*' packaging/prometheus/forebay.rules.yml packaging/grafana/forebay.json | sort -u); do
    [ "$metric" != forebay_condition ] || metric="forebay_condition gauge"
    grep -q "^$metric\|^# TYPE $metric" "$work/metrics.txt" || fail "the server has no metric $metric"
  done
  say "promtool check and test; the server has every metric that is used" "11 alerts"
}

# Starts the service in the root $1 as its unit says (user, folder, command); returns at its READY=1.
start() {
  local root=$1 socket=$1/run/notify
  rm -f "$socket"
  python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(sys.argv[1]); s.settimeout(120)
import os; os.chmod(sys.argv[1], 0o777); print("bound", flush=True)
assert s.recv(64) == b"READY=1"; print("ready", flush=True)
assert s.recv(64) == b"STOPPING=1"; print("stopping", flush=True)' "$socket" >"$work/notify.txt" &
  manager=$!
  wait_for bound
  local command
  command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/forebay.service")
  NOTIFY_SOCKET=/run/notify chroot "$root" setpriv --reuid forebay --regid forebay --clear-groups --no-new-privs \
    env --chdir=/var/lib/forebay $command >"$work/server.log" 2>&1 &
  server=$!
  wait_for ready
}

wait_for() {
  local turn
  for turn in $(seq 600); do
    ! grep -qx "$1" "$work/notify.txt" || return 0
    sleep 0.1
  done
  fail "the server did not say '$1': $(tail -5 "$work/server.log")"
}

stop() {
  kill -TERM "$server"
  wait "$server" || fail "the server ended with $?: $(tail -5 "$work/server.log")"
  wait "$manager" || fail "the service manager was not told of the stop: $(cat "$work/notify.txt")"
}

# Starts the service with the listener of its socket unit, as systemd does at a client's first connection.
activated() {
  local root=$1 address command
  address=$(sed -n 's/^ListenStream=//p' "$root/lib/systemd/system/forebay.socket")
  command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/forebay.service")
  systemd-socket-activate --listen="$address" chroot "$root" setpriv --reuid forebay --regid forebay --clear-groups --no-new-privs \
    env --chdir=/var/lib/forebay $command >"$work/server.log" 2>&1 &
  server=$!
  # The service could not listen on this address itself: it is taken.
  curl -fsS --retry 50 --retry-delay 1 --retry-connrefused "http://$address/" | grep -q forebay.toml ||
    fail "the service does not answer on a listener that it is passed: $(tail -5 "$work/server.log")"
  kill -TERM "$server"
  wait "$server" || fail "the server ended with $?: $(tail -5 "$work/server.log")"
}

deb() {
  local root=$1 old new
  old=$(ls "$work"/dist/*.deb) new=$(ls "$work"/newer/*.deb)
  cp "$old" "$root/old.deb"
  cp "$new" "$root/new.deb"
  chroot "$root" dpkg --install /old.deb >/dev/null
  same "the owner of the config" "$(chroot "$root" stat -c '%U:%G %a' /etc/forebay/forebay.toml)" "root:forebay 640"
  unit "$root"
  start "$root"
  curl -fsS http://127.0.0.1:3000/ | grep -q forebay.toml
  stop
  say "the .deb installs; the service starts, says READY=1, and stops" "$(basename "$old")"
  activated "$root"
  say "the service takes the listener of forebay.socket" "$(sed -n 's/^ListenStream=//p' "$root/lib/systemd/system/forebay.socket")"
  # With a window the server has the metric of the drain that waits for it.
  cat >>"$root/etc/forebay/forebay.toml" <<'TOML'

[drain]
window = "00:00-23:59"

[table.codes]
columns = { id = "serial key", code = "text" }

[[endpoint]]
route = "POST /codes"
insert = "codes"
values = { code = "random_code(8)" }
reply = { status = 201 }

[[endpoint]]
route = "GET /codes/{id}"
get = "codes"
TOML
  start "$root"
  local row
  row=$(curl -fsS -X POST http://127.0.0.1:3000/codes)
  alerts
  # As a crash leaves it: the upgrade must read the log of the version before.
  kill -KILL "$server"
  wait "$server" 2>/dev/null || true
  kill "$manager" 2>/dev/null || true
  chroot "$root" dpkg --install --force-confdef /new.deb >/dev/null
  same "the version" "$(chroot "$root" dpkg-query -W -f '${Version}' forebay)" 9.9.9
  grep -q 'POST /codes' "$root/etc/forebay/forebay.toml" || fail "the upgrade replaced a changed config"
  start "$root"
  same "the row after the upgrade" "$(curl -fsS http://127.0.0.1:3000/codes/1)" "$row"
  chroot "$root" setpriv --reuid forebay --regid forebay --clear-groups /usr/bin/forebay probe ready /etc/forebay/forebay.toml >/dev/null
  stop
  say "upgrade after kill -9: the acknowledged row and the config are there" "$row"
  chroot "$root" dpkg --remove forebay >/dev/null 2>&1
  [ ! -e "$root/usr/bin/forebay" ] && [ -e "$root/etc/forebay/forebay.toml" ] || fail "remove left the binary, or took the config"
  chroot "$root" dpkg --purge forebay >/dev/null 2>&1
  [ ! -e "$root/etc/forebay/forebay.toml" ] || fail "purge left the config"
  [ -d "$root/var/lib/forebay/data/log" ] || fail "purge took data"
  say "remove keeps config and data; purge keeps data" ok
}

image() {
  local root=$work/image
  mkdir -p "$root/layout"
  tar -xf "$work"/dist/*.oci.tar -C "$root/layout"
  umoci unpack --image "$root/layout:$(ls "$work"/dist/*.oci.tar | sed 's/.*forebay-\(.*\)\.oci\.tar/\1/')" "$root/bundle" 2>/dev/null
  local rootfs=$root/bundle/rootfs library
  # A binary for tests may be dynamic; what is shipped is not, and gets nothing here.
  if readelf -l "$rootfs/forebay" | grep -q INTERP; then
    for library in $(ldd "$rootfs/forebay" | grep -o '/[^ ]*'); do install -D "$library" "$rootfs$library"; done
    echo "note: FOREBAY_BIN is dynamic; its libraries were put beside it for this test"
  fi
  sed '/^\[\[endpoint/,$d' packaging/debian/forebay.toml >"$rootfs/etc/forebay/forebay.toml"
  printf '[[endpoint]]\nroute = "GET /"\nconstant = { message = "from the image" }\n' >>"$rootfs/etc/forebay/forebay.toml"
  local args
  args=$(python3 -c 'import json, sys; p = json.load(open(sys.argv[1]))["process"]; print(p["user"]["uid"], p["cwd"], *p["args"])' "$root/bundle/config.json")
  set -- $args
  same "the image's user and folder" "$1 $2" "65532 /data"
  shift 2
  (cd / && exec chroot --userspec=65532:65532 "$rootfs" "$1" --version) >/dev/null
  python3 -c 'import os, sys
os.chroot(sys.argv[1]); os.chdir("/data"); os.setgid(65532); os.setuid(65532); os.execv(sys.argv[2], sys.argv[2:])' "$rootfs" "$@" >"$work/server.log" 2>&1 &
  server=$!
  local turn
  for turn in $(seq 600); do
    ! curl -fs http://127.0.0.1:3000/ >"$work/answer.txt" 2>/dev/null || break
    sleep 0.1
  done
  grep -q "from the image" "$work/answer.txt" || fail "the image does not serve: $(tail -5 "$work/server.log")"
  chroot --userspec=65532:65532 "$rootfs" /forebay probe health /etc/forebay/forebay.toml >/dev/null
  chroot --userspec=65532:65532 "$rootfs" /forebay probe ready /etc/forebay/forebay.toml >/dev/null
  kill -TERM "$server"
  wait "$server"
  ! chroot --userspec=65532:65532 "$rootfs" /forebay probe health /etc/forebay/forebay.toml 2>/dev/null || fail "a probe of a dead server succeeds"
  say "the image serves in its own root as 65532; probes say health, ready, dead" "$(du -h "$work"/dist/*.oci.tar | cut -f1)"
}

if [ "${1:-}" = --inside ]; then
  binary=$work/dist/forebay
  ip link set lo up
  root=$work/root
  rm -rf "$root" "$work/image"
  cp -a "$base" "$root"
  mount -t proc proc "$root/proc"
  manifests
  pages
  deb "$root"
  image
  umount "$root/proc"
  rm -rf "$root" "$work/image"
  echo "$passed passed, 0 failed"
else
  prepare
  # Servers end with this script, and reach nothing but each other.
  PASSED=$passed exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside
fi
