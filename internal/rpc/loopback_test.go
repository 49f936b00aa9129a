package rpc

import "testing"

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost:7000": true, "127.0.0.1:7000": true, "127.9.9.9": true, "[::1]:7000": true, "::1": true, "localhost": true,
		"": false, ":7000": false, "0.0.0.0:7000": false, "[::]:7000": false, "10.0.0.1:7000": false, "localhost.example.org:7000": false, "127.0.0.1.example.org": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}
