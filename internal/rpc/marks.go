package rpc

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Metadata that calls and answers carry.
const (
	// Authorization is a user's or a worker's token, as "Bearer TOKEN".
	Authorization = "authorization"
	// Namespace is the one that a user works in.
	Namespace = "ulisse-namespace"
	// ForwardedFor is where a request of HTTP came from, as the gateway tells.
	ForwardedFor = "x-forwarded-for"
	// StateAge tells with a stale answer how many seconds old it may be.
	StateAge = "ulisse-state-age"

	// Forwarded marks a call that a coordinator has passed on: it is not passed
	// on again.
	Forwarded = "ulisse-forwarded"
	// NodeOnly marks a call that is for the called node alone.
	NodeOnly = "ulisse-node-only"
	// NodeKey is the key that coordinators share where they have no certificates.
	NodeKey = "ulisse-node-key"
	// OnBehalf says for whom a coordinator, or this process's HTTP port, makes a
	// call.
	OnBehalf = "ulisse-on-behalf"
	// Inside carries a secret of this process: what it asks itself.
	Inside = "ulisse-inside"
)

// Mark puts a mark on the calls that are made with the context.
func Mark(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, key, "1")
}

// Marked reports whether a call that came carries a mark.
func Marked(ctx context.Context, key string) bool {
	return len(metadata.ValueFromIncomingContext(ctx, key)) > 0
}
