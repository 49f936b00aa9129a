//go:build !unix

package cluster

func noSpace(error) bool { return false }
