//go:build tools

// Package h2spec keeps the versions of h2spec and of what it is built from, which has no go.mod of its own.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
