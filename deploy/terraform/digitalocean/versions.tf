terraform {
  required_version = ">= 1.6"
  required_providers {
    digitalocean = {
      source  = "digitalocean/digitalocean"
      version = "~> 2.40"
    }
  }
}

# The token comes from DIGITALOCEAN_TOKEN.
provider "digitalocean" {}
