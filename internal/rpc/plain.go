package rpc

import (
	"regexp"
	"strings"
)

// transport matches what gRPC says around the reason of a broken connection.
var transport = regexp.MustCompile(`connection error: |desc = |transport: |authentication handshake failed: |Error while dialing: |error reading from server: |error reading server preface: |dial tcp [^ ]*: |(read|write) tcp [^ ]*: |connect: |"`)

// Plain reduces what gRPC says of a broken connection to its reason.
func Plain(msg string) string {
	msg = transport.ReplaceAllString(msg, "")
	switch {
	case strings.HasSuffix(msg, "EOF"):
		return "the connection was closed"
	case strings.HasPrefix(msg, "context deadline exceeded"):
		return "it took too long"
	}
	return msg
}
