# One private network; each role lets in what it serves, from those who use it.
resource "aws_vpc" "fleet" {
  cidr_block           = "10.77.0.0/16"
  enable_dns_hostnames = true
  tags                 = { Name = var.name }
}

resource "aws_internet_gateway" "fleet" {
  vpc_id = aws_vpc.fleet.id
  tags   = { Name = var.name }
}

resource "aws_subnet" "fleet" {
  vpc_id                  = aws_vpc.fleet.id
  cidr_block              = "10.77.0.0/20"
  map_public_ip_on_launch = true
  tags                    = { Name = var.name }
}

resource "aws_route_table" "fleet" {
  vpc_id = aws_vpc.fleet.id
  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.fleet.id
  }
  tags = { Name = var.name }
}

resource "aws_route_table_association" "fleet" {
  subnet_id      = aws_subnet.fleet.id
  route_table_id = aws_route_table.fleet.id
}

resource "aws_security_group" "role" {
  for_each    = toset(["server", "database", "tester", "valkey"])
  name        = "${var.name}-${each.key}"
  description = "Forebay fleet ${var.name}: ${each.key}"
  vpc_id      = aws_vpc.fleet.id
  tags        = { Name = "${var.name}-${each.key}" }
}

resource "aws_vpc_security_group_egress_rule" "all" {
  for_each          = aws_security_group.role
  security_group_id = each.value.id
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each          = { for pair in setproduct(keys(aws_security_group.role), var.operators) : join(" ", pair) => pair }
  security_group_id = aws_security_group.role[each.value[0]].id
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
  cidr_ipv4         = each.value[1]
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each          = toset(var.clients)
  security_group_id = aws_security_group.role["server"].id
  ip_protocol       = "tcp"
  from_port         = var.port
  to_port           = var.port
  cidr_ipv4         = each.value
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

resource "aws_vpc_security_group_ingress_rule" "fleet" {
  for_each                     = local.allowed
  description                  = each.key
  security_group_id            = aws_security_group.role[each.value.to].id
  referenced_security_group_id = aws_security_group.role[each.value.from].id
  ip_protocol                  = each.value.protocol
  from_port                    = each.value.first
  to_port                      = each.value.last
}
