terraform {
  required_version = ">= 1.6"
  required_providers {
    hcloud = {
      source  = "hetznercloud/hcloud"
      version = "~> 1.48"
    }
  }
}

# The token comes from HCLOUD_TOKEN.
provider "hcloud" {}

locals {
  labels = {
    project = "forebay"
    fleet   = var.name
    # For whoever finds the machines later: when they end by themselves.
    expires = "${var.hours}-hours-after-its-start"
  }
}
