# One private network; each role lets in what it serves, from those who use it. DigitalOcean's firewalls filter it as well.
resource "digitalocean_vpc" "fleet" {
  name     = var.name
  region   = var.region
  ip_range = "10.77.0.0/20"
}

# A firewall's rule names machines by their tag.
resource "digitalocean_tag" "role" {
  for_each = toset(["server", "database", "tester", "valkey"])
  name     = "${var.name}-${each.key}"
}

resource "digitalocean_tag" "fleet" {
  # For whoever finds the machines later: when they end by themselves.
  for_each = toset(["forebay", "forebay-${var.name}", "expires-${var.hours}-hours-after-its-start"])
  name     = each.key
}

# Who may reach what within the fleet. The cluster's bus is 10,000 above its ports.
locals {
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
}

resource "digitalocean_firewall" "role" {
  for_each = digitalocean_tag.role
  name     = each.value.name
  tags     = [each.value.name]

  inbound_rule {
    protocol         = "tcp"
    port_range       = "22"
    source_addresses = var.operators
  }

  dynamic "inbound_rule" {
    for_each = each.key == "server" && length(var.clients) > 0 ? [var.clients] : []
    content {
      protocol         = "tcp"
      port_range       = tostring(var.port)
      source_addresses = inbound_rule.value
    }
  }

  dynamic "inbound_rule" {
    for_each = { for name, rule in local.allowed : name => rule if rule.to == each.key }
    content {
      protocol    = inbound_rule.value.protocol
      port_range  = inbound_rule.value.first == inbound_rule.value.last ? tostring(inbound_rule.value.first) : "${inbound_rule.value.first}-${inbound_rule.value.last}"
      source_tags = [digitalocean_tag.role[inbound_rule.value.from].name]
    }
  }

  dynamic "outbound_rule" {
    for_each = toset(["tcp", "udp"])
    content {
      protocol              = outbound_rule.value
      port_range            = "1-65535"
      destination_addresses = ["0.0.0.0/0", "::/0"]
    }
  }
}
