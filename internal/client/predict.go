package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Predict predicts rows from a job that has ended: at whichever coordinator
// answers, anew where one is lost on the way. progress, if not nil, is told how
// far it is.
func (c *Client) Predict(ctx context.Context, req *pb.PredictRequest, progress func(*pb.PredictProgress)) (*pb.PredictResponse, error) {
	req.Progress = progress != nil
	var answer *pb.PredictResponse
	err := stream(ctx, c, c.cfg.Patience, false, pb.NewPredictionsClient, pb.PredictionsClient.Predict, func() *pb.PredictRequest { return req },
		func(m *pb.PredictResponse) error {
			if len(m.Rows) > 0 {
				answer = m
			} else if progress != nil && m.Progress != nil {
				progress(m.Progress)
			}
			return nil
		})
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return nil, &Error{Code: codes.Internal, Message: "the cluster ended its answer without rows"}
	case len(answer.Rows) != len(req.Rows):
		return nil, &Error{Code: codes.Internal, Message: fmt.Sprintf("the cluster sent %d rows for %d", len(answer.Rows), len(req.Rows))}
	}
	return answer, nil
}
