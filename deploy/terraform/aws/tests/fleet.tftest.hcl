# terraform test: plans with a provider that answers by itself, so that neither an account nor a network is needed.
mock_provider "aws" {}

variables {
  image     = "ami-0123456789abcdef0"
  key_name  = "me"
  operators = ["203.0.113.7/32"]
}

run "a_server_a_database_and_a_tester" {
  command = plan
  assert {
    condition     = join(" ", sort(keys(aws_instance.machine))) == "database server tester-0"
    error_message = "without a cluster there are three machines"
  }
  assert {
    condition     = alltrue([for machine in aws_instance.machine : machine.instance_initiated_shutdown_behavior == "terminate" && strcontains(machine.user_data, "shutdown -P +240")])
    error_message = "every machine ends by itself after four hours"
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.clients) == 0 && length(aws_placement_group.apart) == 0
    error_message = "nobody beside the testers reaches the server, and no group is made for a cluster that is not there"
  }
}

run "a_cluster_of_15_and_15_with_60_testers" {
  command = plan
  variables {
    size             = "large"
    testers          = 60
    valkey_primaries = 15
    valkey_machines  = 5
  }
  assert {
    condition     = length(aws_instance.machine) == 67 && length(local.valkey_nodes) == 30
    error_message = "a server, a database, 60 testers and five machines for 30 nodes"
  }
  assert {
    condition = alltrue([
      for shard in range(15) :
      length(distinct([for node in local.valkey_nodes : node.machine if node.shard == shard])) == 2
    ])
    error_message = "a replica never stands beside its primary"
  }
  assert {
    condition     = length(distinct([for node in local.valkey_nodes : node.port])) == 30
    error_message = "each node has a port of its own"
  }
  assert {
    condition     = output.kinds == { "c7i.48xlarge" = 1, "c7i.8xlarge" = 60, "m7i.8xlarge" = 1, "r7i.4xlarge" = 5 }
    error_message = "the kinds that are paid for are counted"
  }
}

run "ports_are_open_to_those_who_use_them" {
  command = plan
  assert {
    condition = alltrue([
      for rule in aws_vpc_security_group_ingress_rule.ssh : rule.from_port == 22 && rule.cidr_ipv4 == "203.0.113.7/32"
    ])
    error_message = "SSH is for operators"
  }
  assert {
    condition     = alltrue([for rule in aws_vpc_security_group_ingress_rule.fleet : rule.cidr_ipv4 == null])
    error_message = "within the fleet, rules name groups and no networks"
  }
  assert {
    condition     = length([for rule in local.allowed : rule if rule.to == "database"]) == 1
    error_message = "only the server reaches the database"
  }
}

run "a_replica_beside_its_primary_is_refused" {
  command = plan
  variables {
    valkey_primaries = 3
    valkey_machines  = 1
  }
  expect_failures = [aws_instance.machine]
}

run "mistakes_are_refused" {
  command = plan
  variables {
    size             = "huge"
    operators        = ["0.0.0.0/0"]
    valkey_primaries = 2
    hours            = 0
    testers          = 61
  }
  expect_failures = [var.size, var.operators, var.valkey_primaries, var.hours, var.testers]
}
