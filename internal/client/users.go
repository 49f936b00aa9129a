package client

import (
	"context"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// WhoAmI returns whom the cluster takes the caller for.
func (c *Client) WhoAmI(ctx context.Context) (*pb.Identity, error) {
	return unary(ctx, c, pb.NewUsersClient, pb.UsersClient.WhoAmI, &pb.WhoAmIRequest{})
}

// CreateToken makes a token. It is not repeated: each time makes another.
func (c *Client) CreateToken(ctx context.Context, req *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	return once(ctx, c, pb.NewUsersClient, pb.UsersClient.CreateToken, req)
}

// Tokens returns the tokens for the caller's namespaces, oldest first.
func (c *Client) Tokens(ctx context.Context) ([]*pb.Token, error) {
	r, err := unary(ctx, c, pb.NewUsersClient, pb.UsersClient.ListTokens, &pb.ListTokensRequest{})
	return r.GetTokens(), err
}

// RevokeToken ends a token's validity.
func (c *Client) RevokeToken(ctx context.Context, id string) (*pb.Token, error) {
	return unary(ctx, c, pb.NewUsersClient, pb.UsersClient.RevokeToken, &pb.RevokeTokenRequest{Id: id})
}

// Namespaces returns the caller's namespaces.
func (c *Client) Namespaces(ctx context.Context) ([]*pb.Namespace, error) {
	r, err := unary(ctx, c, pb.NewUsersClient, pb.UsersClient.ListNamespaces, &pb.ListNamespacesRequest{})
	return r.GetNamespaces(), err
}

// SetNamespace makes a namespace, if it is to be fresh, or changes the quota of
// one.
func (c *Client) SetNamespace(ctx context.Context, name string, q *pb.Quota, fresh bool) (*pb.Namespace, error) {
	req := &pb.SetNamespaceRequest{Name: name, Quota: q, Fresh: fresh}
	if fresh { // the second time there is one already
		return once(ctx, c, pb.NewUsersClient, pb.UsersClient.SetNamespace, req)
	}
	return unary(ctx, c, pb.NewUsersClient, pb.UsersClient.SetNamespace, req)
}

// DeleteNamespace removes a namespace that nothing is in.
func (c *Client) DeleteNamespace(ctx context.Context, name string) error {
	_, err := once(ctx, c, pb.NewUsersClient, pb.UsersClient.DeleteNamespace, &pb.DeleteNamespaceRequest{Name: name})
	return err
}
