output "machines" {
  description = "Every machine by its name: role, kind, and its addresses."
  value = {
    for name, machine in digitalocean_droplet.machine : name => {
      role    = local.machines[name].role
      kind    = machine.size
      public  = machine.ipv4_address
      private = machine.ipv4_address_private
    }
  }
}

output "kinds" {
  description = "How many machines of each kind: what the fleet costs is counted over this."
  value       = { for kind in distinct(values(local.machines)[*].kind) : kind => length([for machine in values(local.machines) : machine if machine.kind == kind]) }
}

output "valkey_nodes" {
  description = "Where each node of the cluster runs."
  value       = local.valkey_nodes
}

output "url" {
  description = "The server, as testers reach it."
  value       = "http://${digitalocean_droplet.machine["server"].ipv4_address_private}:${var.port}"
}
