# What the machines of a fleet are; a disk comes with each kind. Prices stand in crates/plan/prices.toml.
locals {
  sizes = {
    small  = { server = "c-2", tester = "c-2", valkey = "m-2vcpu-16gb", database = "g-2vcpu-8gb" }
    medium = { server = "c-16", tester = "c-16", valkey = "m-4vcpu-32gb", database = "g-8vcpu-32gb" }
    large  = { server = "c-48", tester = "c-32", valkey = "m-16vcpu-128gb", database = "g-32vcpu-128gb" }
  }
  size = local.sizes[var.size]

  # Node i of a shard of 1 + replicas lies on machine (shard + i) of all: two nodes of a shard never share one.
  valkey_nodes = flatten([
    for shard in range(var.valkey_primaries) : [
      for copy in range(1 + var.valkey_replicas) : {
        shard   = shard
        role    = copy == 0 ? "primary" : "replica"
        machine = (shard + copy) % var.valkey_machines
        port    = 7000 + shard * (1 + var.valkey_replicas) + copy
      }
    ]
  ])

  machines = merge(
    { server = { kind = local.size.server, role = "server" } },
    { database = { kind = local.size.database, role = "database" } },
    { for at in range(var.testers) : "tester-${at}" => { kind = local.size.tester, role = "tester" } },
    var.valkey_primaries == 0 ? {} : {
      for at in range(var.valkey_machines) : "valkey-${at}" => { kind = local.size.valkey, role = "valkey" }
    },
  )
}
