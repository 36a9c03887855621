#!/usr/bin/env bash
# One run on rented machines, from nothing to nothing: prices them, makes them, puts the software there, loads the server, fetches the
# results, destroys the machines. They are destroyed as well when a step fails or when this is interrupted; machines end by themselves
# after --hours when even that is cut off.
#   deploy/bench.sh PROVIDER --limit DOLLARS [--hours N] [--results FOLDER] [--prices FILE] [--set NAME=VALUE]... -- WHAT `forebay load` GETS
#   deploy/bench.sh aws --limit 20 --set size=medium --set testers=4 --set image=ami-… -- -R 200k -d 5m
# PROVIDER is a folder of deploy/terraform, or any folder with its outputs. Nothing is made when the hours cost more than --limit.
# BENCH_USER is whom SSH logs in as (root), BENCH_SSH more words for ssh, BENCH_PATH what is asked for (/simple).
# FLEET_VARS names a file of variables for the playbook (binary, config, ansible_user …).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '5,6s/^#   //p' "$0" >&2; exit 2; }
fail() { echo "bench: $*" >&2; exit 1; }

provider=${1:-}
[ -n "$provider" ] || usage
shift
[ -d "$provider" ] || provider=$here/terraform/$provider
[ -d "$provider" ] || fail "there is no provider $provider"
labels=(--label "provider=$(basename "$provider")")
limit='' hours=1 results=bench-$(date -u +%Y%m%dT%H%M%SZ) prices=$here/../crates/plan/prices.toml settings=()
while [ $# -gt 0 ]; do
  case $1 in
    --limit) limit=$2 ;;
    --hours) hours=$2 ;;
    --results) results=$2 ;;
    --prices) prices=$2 ;;
    --set)
      settings+=(-var "$2")
      # What tells this run from others, for `forebay runs`.
      case $2 in size=* | testers=* | valkey_primaries=*) labels+=(--label "$2") ;; esac
      ;;
    --) shift; break ;;
    *) usage ;;
  esac
  shift 2
done
[ -n "$limit" ] || usage
[ $# -gt 0 ] || fail "say after -- what \`forebay load\` is to do, such as -R 10k -d 60s"
for tool in terraform ansible-playbook python3 ssh; do command -v "$tool" >/dev/null || fail "needs $tool"; done
[ ! -e "$results" ] || fail "$results is there already"
mkdir -p "$results"
results=$(cd "$results" && pwd)
settings+=(-var "hours=$hours")
# The state is that of this run alone: two runs never destroy each other's machines.
state=$results/terraform.tfstate
terraform() { command terraform -chdir="$provider" "$@"; }
step() { echo "bench: $(date -u +%T) $*"; }

# A signal must not wait for the end of a step: each long one is a process of its own, which `destroy` ends first.
child=''
run() {
  local code=0
  "$@" &
  child=$!
  wait "$child" || code=$?
  child=''
  return $code
}

# What an hour costs, of a plan: every kind must have a price.
price() {
  terraform init -input=false -no-color >"$results/init.log" || { cat "$results/init.log" >&2; fail "terraform init fails"; }
  terraform plan -input=false -no-color -state="$state" -out "$results/plan" "${settings[@]}" >"$results/plan.log" || { cat "$results/plan.log" >&2; fail "terraform plan fails"; }
  terraform show -json "$results/plan" | python3 -c '
import json, sys, tomllib
file, hours, limit, provider = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
prices = tomllib.load(open(file, "rb"))
known = {entry["name"]: entry for entry in prices.get("machine", []) + prices.get("part", [])}
kinds, total = json.load(sys.stdin)["planned_values"]["outputs"]["kinds"]["value"], 0
for kind, count in sorted(kinds.items()):
    entry = known.get(f"{provider} {kind}") or sys.exit(f"bench: {file} has no price for {provider} {kind}")
    hour = count * entry["dollars_a_month"] / 730
    total += hour
    mark = "" if entry["verified"] else "*"
    print(f"{count:4} x {kind:20} {hour:10.3f} dollars an hour{mark}")
day = prices["date"]
print(f"     all together         {total:10.3f} dollars an hour, {total * hours:.2f} for {hours:g} h; prices of {day}, without traffic and taxes")
if not all(known[f"{provider} {kind}"]["verified"] for kind in kinds):
    print("     * not compared with the page of the provider")
if total * hours > limit:
    sys.exit(f"bench: that is above the limit of {limit:.2f} dollars; nothing was made")' \
    "$prices" "$hours" "$limit" "$(basename "$provider")"
}

# Runs however this ends. A machine that Terraform cannot destroy is named, because it costs.
destroy() {
  local code=$? attempt
  trap - EXIT
  trap '' INT TERM HUP
  # A signal comes while the step that it ends writes to a file.
  exec >&3 2>&4
  if [ -n "$child" ]; then
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" || true
  fi
  step "destroying"
  for attempt in 1 2 3; do
    if terraform destroy -input=false -no-color -auto-approve -state="$state" "${settings[@]}" >>"$results/destroy.log" 2>&1 &&
      [ -z "$(terraform state list -state="$state" 2>/dev/null)" ]; then
      step "nothing is left; the results are in $results"
      rm -f "$results/plan" "$results"/terraform.tfstate*
      rm -rf "$results/secrets"
      exit "$code"
    fi
    sleep $((attempt * 5))
  done
  echo "bench: NOT DESTROYED, and it costs money: $(terraform state list -state="$state" | tr '\n' ' ')" >&2
  echo "bench: terraform -chdir=$provider destroy -state=$state ${settings[*]}" >&2
  exit 1
}

price
exec 3>&1 4>&2
trap destroy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
step "making the machines"
run env terraform -chdir="$provider" apply -input=false -no-color -state="$state" "$results/plan" >"$results/apply.log" 2>&1 || { tail -20 "$results/apply.log" >&2; fail "terraform apply fails"; }
terraform output -json -state="$state" >"$results/fleet.json"
"$here/ansible/inventory" <"$results/fleet.json" >"$results/inventory.json"
read -r url server controller agents < <(python3 - "$results/fleet.json" <<'PY'
import json, sys
outputs = {name: output["value"] for name, output in json.load(open(sys.argv[1])).items()}
machines = outputs["machines"]
testers = [machine for machine in machines.values() if machine["role"] == "tester"] or sys.exit("bench: there is no tester")
print(outputs["url"], machines["server"]["private"], testers[0]["public"], ",".join(f"{machine['private']}:7070" for machine in testers))
PY
)

step "putting the software there"
vars=()
[ -z "${FLEET_VARS:-}" ] || vars+=(-e "@$FLEET_VARS")
vars+=(-e "secrets=$results/secrets")
# Words, not a path: BENCH_SSH="-i KEY -o …".
read -ra reach <<<"ssh ${BENCH_SSH:-} -o ConnectTimeout=5 -o BatchMode=yes"
user=${BENCH_USER:-root}
for turn in $(seq 60); do
  ! "${reach[@]}" "$user@$controller" true 2>"$results/ssh.log" || break
  [ "$turn" -lt 60 ] || { cat "$results/ssh.log" >&2; fail "$controller does not answer by SSH"; }
  sleep 5
done
run env ANSIBLE_CONFIG="$here/ansible/ansible.cfg" ansible-playbook -u "$user" -i "$results/inventory.json" "${vars[@]}" "$here/ansible/site.yml" >"$results/ansible.log" 2>&1 ||
  { tail -40 "$results/ansible.log" >&2; fail "the playbook fails: $results/ansible.log"; }

# The first tester is the controller: only testers reach the agents. What a threshold says (exit 3) is a result as well.
step "loading $url"
code=0
load=$(printf ' %q' "${labels[@]}" "$@" "$url${BENCH_PATH:-/simple}")
run "${reach[@]}" "$user@$controller" "sudo=; [ \$(id -u) -eq 0 ] || sudo=sudo; \$sudo sh -c $(printf %q "set -a; . /etc/default/forebay-agent; cd /tmp; exec /opt/forebay-agent/forebay load --agents $agents --monitor agent://$server:7070 --json /tmp/bench.json --html /tmp/bench.html$load")" \
  >"$results/load.txt" 2>&1 || code=$?
step "fetching the results"
for file in json html; do "${reach[@]}" "$user@$controller" cat "/tmp/bench.$file" >"$results/load.$file" || { cat "$results/load.txt" >&2; fail "the load made no $file"; }; done
[ $code -eq 0 ] || [ $code -eq 3 ] || { tail -20 "$results/load.txt" >&2; fail "the load ended with $code"; }
tail -20 "$results/load.txt"
exit $code
