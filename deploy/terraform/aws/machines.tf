# Server and testers stand close together; Valkey's machines on different racks.
resource "aws_placement_group" "close" {
  name     = "${var.name}-close"
  strategy = "cluster"
}

resource "aws_placement_group" "apart" {
  count    = var.valkey_primaries == 0 ? 0 : 1
  name     = "${var.name}-apart"
  strategy = "partition"
  # A zone has at most 7 partitions.
  partition_count = min(var.valkey_machines, 7)
}

resource "aws_instance" "machine" {
  for_each               = local.machines
  ami                    = var.image
  instance_type          = each.value.kind
  key_name               = var.key_name
  subnet_id              = aws_subnet.fleet.id
  vpc_security_group_ids = [aws_security_group.role[each.value.role].id]
  placement_group        = each.value.role == "valkey" ? aws_placement_group.apart[0].name : aws_placement_group.close.name

  # Partitions share no rack.
  placement_partition_number = try(each.value.partition, null)

  # The end of its time is a shutdown, and a shutdown gives the machine and its disk back.
  instance_initiated_shutdown_behavior = "terminate"
  user_data                            = <<-SCRIPT
    #!/bin/sh
    shutdown -P +${var.hours * 60}
  SCRIPT

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    volume_type           = "gp3"
    volume_size           = contains(["server", "database", "valkey"], each.value.role) ? local.size.disk_gb : 20
    encrypted             = true
    delete_on_termination = true
  }

  tags = {
    Name = "${var.name}-${each.key}"
    Role = each.value.role
  }

  lifecycle {
    precondition {
      condition     = var.valkey_primaries == 0 || var.valkey_machines > var.valkey_replicas
      error_message = "A replica would stand beside its primary: valkey_machines must be above valkey_replicas."
    }
  }
}
