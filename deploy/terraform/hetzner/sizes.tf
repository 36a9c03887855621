# What the machines of a fleet are; a disk comes with each kind. Prices stand in crates/plan/prices.toml.
locals {
  sizes = {
    small  = { server = "ccx13", tester = "ccx13", valkey = "ccx13", database = "ccx13" }
    medium = { server = "ccx33", tester = "ccx33", valkey = "ccx23", database = "ccx33" }
    large  = { server = "ccx63", tester = "ccx53", valkey = "ccx43", database = "ccx53" }
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
