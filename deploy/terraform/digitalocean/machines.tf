# DigitalOcean has no placement group: where machines stand is not in our hands, and two of Valkey's may share a host.
resource "digitalocean_droplet" "machine" {
  for_each = local.machines
  name     = "${var.name}-${each.key}"
  image    = var.image
  size     = each.value.kind
  region   = var.region
  ssh_keys = [var.key_name]
  vpc_uuid = digitalocean_vpc.fleet.id
  tags     = concat([digitalocean_tag.role[each.value.role].name], [for tag in digitalocean_tag.fleet : tag.name])

  user_data = templatefile("${path.module}/../user-data.sh", {
    hours    = var.hours
    token    = var.end_token
    machines = "https://api.digitalocean.com/v2/droplets"
    self     = "http://169.254.169.254/metadata/v1/id"
    filter   = ""
  })

  lifecycle {
    precondition {
      condition     = var.valkey_primaries == 0 || var.valkey_machines > var.valkey_replicas
      error_message = "A replica would stand beside its primary: valkey_machines must be above valkey_replicas."
    }
  }
}
