# The provider of the test: what deploy/terraform/aws makes, of namespaces on this machine. Needs no plugin. The variables are those that
# deploy/bench.sh and the test set, the outputs are the same.
variable "name" { default = "test" }
variable "size" { default = "small" }
variable "testers" { default = 1 }
variable "valkey_primaries" { default = 0 }
variable "valkey_replicas" { default = 1 }
variable "valkey_machines" { default = 3 }
variable "port" { default = 3000 }
variable "hours" { default = 1 }

locals {
  names = concat(
    ["server", "database"],
    [for at in range(var.testers) : "tester-${at}"],
    [for at in range(var.valkey_primaries == 0 ? 0 : var.valkey_machines) : "valkey-${at}"],
  )
  machines = {
    for at, name in local.names : name => { role = split("-", name)[0], kind = "test ${split("-", name)[0]}", address = "10.77.1.${at + 1}" }
  }
}

resource "terraform_data" "machine" {
  for_each = local.machines
  input    = each.value
  provisioner "local-exec" {
    command = "$FLEET_TEST/machine up ${each.key} ${each.value.address} ${var.hours * 3600}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "$FLEET_TEST/machine down ${each.key}"
  }
}

output "machines" {
  value = {
    for name, machine in terraform_data.machine : name => {
      role    = machine.output.role
      kind    = machine.output.kind
      public  = machine.output.address
      private = machine.output.address
    }
  }
}

output "kinds" {
  value = { for kind in distinct(values(local.machines)[*].kind) : kind => length([for machine in values(local.machines) : machine if machine.kind == kind]) }
}

output "valkey_nodes" {
  value = flatten([
    for shard in range(var.valkey_primaries) : [
      for copy in range(1 + var.valkey_replicas) : {
        shard   = shard
        role    = copy == 0 ? "primary" : "replica"
        machine = (shard + copy) % var.valkey_machines
        port    = 7000 + shard * (1 + var.valkey_replicas) + copy
      }
    ]
  ])
}

output "url" {
  value = "http://${local.machines["server"].address}:${var.port}"
}
