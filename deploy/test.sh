#!/usr/bin/env bash
# Checks what deploy/ has, without an account: format, schema, a plan with credentials that open nothing, and the tests of each fleet.
# Needs terraform 1.7 or newer. FOREBAY_TF_PLUGINS names a folder with providers where the registry cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/terraform/aws"
command -v terraform >/dev/null || { echo "deploy/test.sh: needs terraform, which Debian does not have" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" .terraform.lock.hcl' EXIT
export TF_DATA_DIR=$scratch/data TF_IN_AUTOMATION=1 TF_INPUT=0

terraform fmt -check -recursive -diff ..
terraform init -backend=false ${FOREBAY_TF_PLUGINS:+-plugin-dir="$FOREBAY_TF_PLUGINS"} >"$scratch/init.txt" || { cat "$scratch/init.txt"; exit 1; }
terraform validate -no-color
export AWS_ACCESS_KEY_ID=nobody AWS_SECRET_ACCESS_KEY=nothing AWS_EC2_METADATA_DISABLED=true
terraform plan -no-color -var offline=true -var image=ami-0123456789abcdef0 -var key_name=me \
  -var 'operators=["203.0.113.7/32"]' -var valkey_primaries=3 -var testers=4 >"$scratch/plan.txt" || { cat "$scratch/plan.txt"; exit 1; }
grep '^Plan:' "$scratch/plan.txt"
terraform test -no-color
