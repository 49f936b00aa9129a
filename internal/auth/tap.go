package auth

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// Tap judges a call by its headers, before a byte of its message is read: nobody
// who is not known has memory spent on what they send. The context it returns is
// that of the call. It is for calls over the wire; of others the interceptors
// see to it.
func (g *Guard) Tap(ctx context.Context, method string) (context.Context, *Identity, error) {
	id, err := g.Knows(ctx)
	if err != nil {
		g.Refused(ctx, id, method, err)
		return ctx, id, err
	}
	ctx, err = g.begun(ctx, id.key())
	return ctx, id, err
}

// Knows returns who calls, or an error if nobody is known. It is given the
// context of a call that has come.
func (g *Guard) Knows(ctx context.Context) (*Identity, error) { return g.who(ctx) }

// Refused keeps in the audit log that somebody was refused for who they are before
// it was seen what they want.
func (g *Guard) Refused(ctx context.Context, id *Identity, method string, err error) {
	g.note(ctx, id, nil, method, "", "", g.Now(), err)
}

// Receive counts a message, or a body, of a caller that is being received, until
// the function returned is called.
func (g *Guard) Receive(id *Identity) (end func(), err error) { return g.receive(id.key()) }

// Bounds of messages that are being received, since they are kept whole before
// anybody looks at them: of one user, of all, and how long one may take.
const (
	receiveEach = 16
	receiveAll  = 32
	receiveMost = 30 * time.Second
)

// receive counts a message of a caller that is being received. Those of nodes are
// not counted.
func (g *Guard) receive(key string) (end func(), err error) {
	if key == "" {
		return func() {}, nil
	}
	switch end, err = g.receiving.Take(key); err {
	case nil:
		return end, nil
	case rpc.ErrEach:
		return nil, status.Errorf(codes.ResourceExhausted, "%d requests are being sent, %v: slow down", receiveEach, err)
	}
	return nil, status.Errorf(codes.Unavailable, "%d requests are being sent, %v: try again", receiveAll, err)
}

type receivedKey struct{}

// begun counts the first message of a call until received is called. A message
// that takes too long ends the call.
func (g *Guard) begun(ctx context.Context, key string) (context.Context, error) {
	end, err := g.receive(key)
	if err != nil || key == "" {
		return ctx, err
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(receiveMost, cancel)
	done := func() {
		late.Stop()
		end()
	}
	context.AfterFunc(ctx, done)
	return context.WithValue(ctx, receivedKey{}, done), nil
}

// received notes that the first message of a call is there.
func received(ctx context.Context) {
	if done, ok := ctx.Value(receivedKey{}).(func()); ok {
		done()
	}
}
