variable "name" {
  description = "The name of the fleet: in every tag and name, so that several stand side by side."
  type        = string
  default     = "forebay"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,30}$", var.name))
    error_message = "The name must be small letters, digits and hyphens, 31 at most."
  }
}

variable "region" {
  description = "The region of all machines."
  type        = string
  default     = "fra1"
}

variable "image" {
  description = "The image of all machines: Debian 12 or newer."
  type        = string
  default     = "debian-12-x64"
}

variable "key_name" {
  description = "The fingerprint or number of an SSH key of the account, by which the machines are reached."
  type        = string
}

variable "operators" {
  description = "Networks that may reach SSH, such as [\"203.0.113.7/32\"]."
  type        = list(string)
  validation {
    condition     = length(var.operators) > 0 && !contains(var.operators, "0.0.0.0/0") && !contains(var.operators, "::/0")
    error_message = "SSH must not be open to everybody: name your own addresses."
  }
}

variable "clients" {
  description = "Networks beside the testers that may reach the server's port; empty: nobody."
  type        = list(string)
  default     = []
}

variable "size" {
  description = "small, medium or large: the kinds of machines in sizes.tf."
  type        = string
  default     = "small"
  validation {
    condition     = contains(["small", "medium", "large"], var.size)
    error_message = "The size must be small, medium or large."
  }
}

variable "testers" {
  description = "Machines that send load."
  type        = number
  default     = 1
  validation {
    condition     = var.testers >= 0 && var.testers <= 60
    error_message = "There must be 0 to 60 testers."
  }
}

variable "valkey_primaries" {
  description = "Primaries of the Valkey cluster; 0: memory is in the server."
  type        = number
  default     = 0
  validation {
    condition     = var.valkey_primaries == 0 || (var.valkey_primaries >= 3 && var.valkey_primaries <= 30)
    error_message = "A cluster has 3 to 30 primaries; 0 is none."
  }
}

variable "valkey_replicas" {
  description = "Replicas of each primary."
  type        = number
  default     = 1
  validation {
    condition     = var.valkey_replicas >= 0 && var.valkey_replicas <= 2
    error_message = "A primary has 0 to 2 replicas."
  }
}

variable "valkey_machines" {
  description = "Machines that the nodes of the cluster are spread over."
  type        = number
  default     = 3
  validation {
    condition     = var.valkey_machines >= 1
    error_message = "There must be a machine."
  }
}

variable "port" {
  description = "The port that clients use."
  type        = number
  default     = 3000
}

variable "hours" {
  description = "The machines end by themselves so many hours after they were made; see end_token."
  type        = number
  default     = 4
  validation {
    condition     = var.hours >= 1 && var.hours <= 720
    error_message = "The time to live must be 1 to 720 hours."
  }
}

variable "end_token" {
  description = "A token that may delete machines: each keeps it, and deletes itself at the end of its hours. Empty: it is only switched off, and goes on to cost."
  type        = string
  default     = ""
  sensitive   = true
}
