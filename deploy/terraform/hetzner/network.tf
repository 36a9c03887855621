# One private network; each role lets in what it serves on its public side. Hetzner's firewalls do not filter private networks: there the
# machines filter themselves, by what user data gives them.
resource "hcloud_network" "fleet" {
  name     = var.name
  ip_range = "10.77.0.0/16"
  labels   = local.labels
}

resource "hcloud_network_subnet" "fleet" {
  network_id   = hcloud_network.fleet.id
  type         = "cloud"
  network_zone = local.zones[var.region]
  ip_range     = "10.77.0.0/20"
}

resource "hcloud_firewall" "role" {
  for_each = toset(["server", "database", "tester", "valkey"])
  name     = "${var.name}-${each.key}"
  labels   = local.labels

  rule {
    description = "SSH"
    direction   = "in"
    protocol    = "tcp"
    port        = "22"
    source_ips  = var.operators
  }

  dynamic "rule" {
    for_each = each.key == "server" && length(var.clients) > 0 ? [var.clients] : []
    content {
      description = "clients"
      direction   = "in"
      protocol    = "tcp"
      port        = tostring(var.port)
      source_ips  = rule.value
    }
  }
}

# Who may reach what within the fleet. The cluster's bus is 10,000 above its ports.
locals {
  zones = { fsn1 = "eu-central", nbg1 = "eu-central", hel1 = "eu-central", ash = "us-east", hil = "us-west", sin = "ap-southeast" }

  allowed = {
    "tester to server"      = { to = "server", from = "tester", protocol = "tcp", first = var.port, last = var.port }
    "server to database"    = { to = "database", from = "server", protocol = "tcp", first = 5432, last = 5432 }
    "server to valkey"      = { to = "valkey", from = "server", protocol = "tcp", first = 7000, last = 7099 }
    "tester to valkey"      = { to = "valkey", from = "tester", protocol = "tcp", first = 7000, last = 7099 }
    "valkey to valkey"      = { to = "valkey", from = "valkey", protocol = "tcp", first = 7000, last = 7099 }
    "valkey bus"            = { to = "valkey", from = "valkey", protocol = "tcp", first = 17000, last = 17099 }
    "controller to agent"   = { to = "tester", from = "tester", protocol = "tcp", first = 7070, last = 7070 }
    "monitor of the server" = { to = "server", from = "tester", protocol = "tcp", first = 7070, last = 7070 }
    "packets of the probe"  = { to = "server", from = "tester", protocol = "udp", first = 7070, last = 7070 }
  }

  # Each machine's address in the private network, by its role and number: a rule can name a role as a network.
  role_networks = { server = "10.77.0.16/28", database = "10.77.0.32/28", valkey = "10.77.1.0/24", tester = "10.77.2.0/24" }
  private = {
    for name, machine in local.machines :
    name => cidrhost(local.role_networks[machine.role], 4 + try(tonumber(split("-", name)[1]), 0))
  }

  # The private side of a role: nftables of the machine, before anything listens there.
  filters = {
    for role in keys(local.role_networks) : role => join("\n", [
      for rule in values(local.allowed) :
      "    ip saddr ${local.role_networks[rule.from]} ${rule.protocol} dport ${rule.first == rule.last ? tostring(rule.first) : "${rule.first}-${rule.last}"} accept" if rule.to == role
    ])
  }
}
