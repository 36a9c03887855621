# What the machines of a fleet are. Prices stand in crates/plan/prices.toml.
locals {
  sizes = {
    small  = { server = "c7i.large", tester = "c7i.large", valkey = "r7i.large", database = "m7i.large", disk_gb = 30 }
    medium = { server = "c7i.4xlarge", tester = "c7i.4xlarge", valkey = "r7i.xlarge", database = "m7i.2xlarge", disk_gb = 100 }
    large  = { server = "c7i.48xlarge", tester = "c7i.8xlarge", valkey = "r7i.4xlarge", database = "m7i.8xlarge", disk_gb = 500 }
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
      for at in range(var.valkey_machines) : "valkey-${at}" => { kind = local.size.valkey, role = "valkey", partition = at % 7 + 1 }
    },
  )
}
