//go:build tools

// Package k6 keeps the versions of k6 and of what it is built from.
package k6

import _ "go.k6.io/k6"
