# Valkey's machines stand on different hosts. Hetzner has no group that places machines close to each other.
resource "hcloud_placement_group" "apart" {
  count  = var.valkey_primaries == 0 ? 0 : 1
  name   = "${var.name}-apart"
  type   = "spread"
  labels = local.labels
}

resource "hcloud_server" "machine" {
  for_each           = local.machines
  name               = "${var.name}-${each.key}"
  image              = var.image
  server_type        = each.value.kind
  location           = var.region
  ssh_keys           = [var.key_name]
  firewall_ids       = [hcloud_firewall.role[each.value.role].id]
  placement_group_id = each.value.role == "valkey" ? hcloud_placement_group.apart[0].id : null
  labels             = merge(local.labels, { role = each.value.role })

  network {
    network_id = hcloud_network.fleet.id
    ip         = local.private[each.key]
    alias_ips  = []
  }

  user_data = templatefile("${path.module}/../user-data.sh", {
    hours    = var.hours
    token    = var.end_token
    machines = "https://api.hetzner.cloud/v1/servers"
    self     = "http://169.254.169.254/hetzner/v1/metadata/instance-id"
    filter   = local.filters[each.value.role]
  })

  depends_on = [hcloud_network_subnet.fleet]

  lifecycle {
    precondition {
      condition     = var.valkey_primaries == 0 || var.valkey_machines > var.valkey_replicas
      error_message = "A replica would stand beside its primary: valkey_machines must be above valkey_replicas."
    }
  }
}
