#!/usr/bin/env bash
# Checks the machines of deploy/terraform without an account: format; each provider's schema, and a plan with credentials that open nothing;
# for AWS the tests of the fleet; for Hetzner and DigitalOcean that variables, outputs, ports and nodes are those of AWS. Without the provider
# of one of these two, its schema and plan are left out, and the output says so.
# Needs terraform 1.7 or newer. FOREBAY_TF_PLUGINS names a folder with providers where the registry cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/terraform"
command -v terraform >/dev/null || { echo "deploy/test.sh: needs terraform, which Debian does not have" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" */.terraform.lock.hcl' EXIT
export TF_DATA_DIR=$scratch/data TF_IN_AUTOMATION=1 TF_INPUT=0
fail() { echo "deploy/test.sh: $*" >&2; exit 1; }
init() { terraform init -no-color -backend=false ${FOREBAY_TF_PLUGINS:+-plugin-dir="$FOREBAY_TF_PLUGINS"} >"$scratch/init.txt"; }

terraform fmt -check -recursive -diff ..
cd aws
init || { cat "$scratch/init.txt"; exit 1; }
terraform validate -no-color
export AWS_ACCESS_KEY_ID=nobody AWS_SECRET_ACCESS_KEY=nothing AWS_EC2_METADATA_DISABLED=true
terraform plan -no-color -var offline=true -var image=ami-0123456789abcdef0 -var key_name=me \
  -var 'operators=["203.0.113.7/32"]' -var valkey_primaries=3 -var testers=4 >"$scratch/plan.txt" || { cat "$scratch/plan.txt"; exit 1; }
grep '^Plan:' "$scratch/plan.txt"
terraform test -no-color
cd ..

# The provider's schema and a plan of cloud $1, where its provider can be had.
schema() (
  cd "$1"
  export TF_DATA_DIR=$scratch/data-$1 HCLOUD_TOKEN DIGITALOCEAN_TOKEN=nothing
  HCLOUD_TOKEN=$(printf 'x%.0s' {1..64})
  init 2>"$scratch/no-provider.txt" || { echo "not checked against the provider's schema, which cannot be had here"; exit 0; }
  terraform validate -no-color >"$scratch/validate.txt" 2>&1 || { cat "$scratch/validate.txt" >&2; exit 1; }
  terraform plan -no-color -var key_name=me -var 'operators=["203.0.113.7/32"]' -var valkey_primaries=3 -var testers=4 >"$scratch/plan.txt" 2>&1 ||
    { cat "$scratch/plan.txt" >&2; exit 1; }
  echo "valid by $(sed -n 's/^- Installed \([^ ]* v[^ ]*\).*/\1/p; s/^- Using previously-installed \([^ ]* v[^ ]*\).*/\1/p' "$scratch/init.txt"); $(grep '^Plan:' "$scratch/plan.txt")"
)

# What a provider's folder says without its provider: variables, sizes and nodes, planned in a folder of their own.
names() { sed -n "s/^$1 \"\(.*\)\" {/\1/p" "$2"/*.tf | grep -vx 'offline\|end_token' | sort; }
allowed() { sed -n '/^  allowed = {/,/^  }/p' "$1/network.tf"; }
for cloud in hetzner digitalocean; do
  for block in variable output; do
    diff <(names $block aws) <(names $block $cloud) || fail "$cloud has not the ${block}s of AWS"
  done
  diff <(allowed aws) <(allowed $cloud) || fail "$cloud lets other ports in than AWS"
  mkdir "$scratch/$cloud"
  cp $cloud/variables.tf $cloud/sizes.tf "$scratch/$cloud/"
  printf 'output "kinds" {\n  value = distinct(values(local.machines)[*].kind)\n}\noutput "nodes" {\n  value = local.valkey_nodes\n}\n' >"$scratch/$cloud/outputs.tf"
  terraform -chdir="$scratch/$cloud" init -no-color >/dev/null
  for size in small medium large; do
    terraform -chdir="$scratch/$cloud" plan -no-color -out plan -var key_name=me -var 'operators=["203.0.113.7/32"]' -var size=$size -var valkey_primaries=3 >"$scratch/plan.txt" ||
      { cat "$scratch/plan.txt"; fail "$cloud cannot be planned"; }
    terraform -chdir="$scratch/$cloud" show -json plan | python3 -c '
import json, sys
outputs = {name: output["value"] for name, output in json.load(sys.stdin)["planned_values"]["outputs"].items()}
assert len(outputs["nodes"]) == 6
for shard in range(3):
    assert len({node["machine"] for node in outputs["nodes"] if node["shard"] == shard}) == 2, "a replica stands beside its primary"'
  done
  ! terraform -chdir="$scratch/$cloud" plan -no-color -var key_name=me -var 'operators=["0.0.0.0/0"]' >/dev/null 2>&1 || fail "$cloud opens SSH to everybody"
  checked=$(schema $cloud) || fail "$cloud is not as its provider has it"
  echo "$cloud: variables, outputs, ports and nodes as of AWS; $checked"
done

# deploy/bench.sh prices every kind of every size.
python3 - <<'PY'
import re, tomllib
prices = tomllib.load(open("../../crates/plan/prices.toml", "rb"))
known = {entry["name"] for entry in prices["machine"] + prices["part"]}
for cloud in ("aws", "digitalocean", "hetzner"):
    for line in re.findall(r"(?:small|medium|large) +=.*", open(f"{cloud}/sizes.tf").read()):
        for kind in re.findall(r'"(.*?)"', line):
            assert f"{cloud} {kind}" in known, f"prices.toml has no price for {cloud} {kind}"
print("every kind has a price")
PY
