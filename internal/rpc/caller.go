package rpc

import (
	"context"

	"google.golang.org/grpc"
)

// WithCaller lets a connection say with every call who calls, by a token, and in
// which namespace they work; either may be empty. secure refuses to say so over
// a connection that is not encrypted.
func WithCaller(token, namespace string, secure bool) grpc.DialOption {
	return grpc.WithPerRPCCredentials(caller{token, namespace, secure})
}

type caller struct {
	token, namespace string
	secure           bool
}

func (c caller) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	md := map[string]string{}
	if c.token != "" {
		md[Authorization] = "Bearer " + c.token
	}
	if c.namespace != "" {
		md[Namespace] = c.namespace
	}
	return md, nil
}

func (c caller) RequireTransportSecurity() bool { return c.secure }
