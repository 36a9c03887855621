terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.0"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = {
      Project = "forebay"
      Fleet   = var.name
      # For whoever finds the machines later: when they end by themselves.
      Expires = "${var.hours} hours after each start"
    }
  }

  # Only for a plan without an account (deploy/test.sh).
  skip_credentials_validation = var.offline
  skip_requesting_account_id  = var.offline
  skip_metadata_api_check     = var.offline
  skip_region_validation      = var.offline
}
