package rpc

import "net"

// Loopback reports whether an address, with a port or without, is of this machine
// alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
