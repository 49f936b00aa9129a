package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// blobView is a data set as --json prints it.
type blobView struct {
	SHA256   string     `json:"sha256"`
	Size     int64      `json:"size"`
	Present  int64      `json:"present"`
	Complete bool       `json:"complete"`
	Holders  []string   `json:"holders"`
	Stored   *time.Time `json:"stored"`
	Jobs     []string   `json:"jobs"`
}

func newBlobView(b *pb.Blob) blobView {
	return blobView{b.Sha256, b.Size, b.Present, b.Complete, some(b.Holders), client.Moment(b.Stored), some(b.Jobs)}
}

func (a *App) dataCommand() *cobra.Command {
	var r remote
	c := &cobra.Command{
		Use:   "data",
		Short: "List, upload and download the data sets that a cluster keeps",
		Long: `List, upload and download the data sets that a cluster keeps, each under the
SHA-256 of its file. 'ulisse submit' uploads what it needs by itself.`,
	}
	group(c)
	r.flags(c)
	c.AddCommand(a.dataList(&r), a.dataUpload(&r), a.dataDownload(&r))
	return c
}

func (a *App) dataList(r *remote) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List data sets",
		Args:  cobra.NoArgs,
		RunE: a.on(r, func(ctx context.Context, s *session, _ []string) error {
			blobs, err := s.Blobs(ctx)
			if err != nil {
				return err
			}
			views := []blobView{}
			var rows [][]string
			for _, b := range blobs {
				views = append(views, newBlobView(b))
				state := "complete"
				if !b.Complete {
					state = fmt.Sprintf("%d %%", 100*b.Present/max(1, b.Size))
				}
				rows = append(rows, []string{b.Sha256, bytesText(b.Size), state, strings.Join(b.Holders, ","), strconv.Itoa(len(b.Jobs)), age(b.Stored, a.Now())})
			}
			if asJSON {
				return a.printJSON(views)
			}
			return a.table("SHA256 SIZE STATE HOLDERS JOBS AGE", rows)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *App) dataUpload(r *remote) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "upload FILE",
		Short: "Upload a data set, or the rest of it, and print its address",
		Args:  cobra.ExactArgs(1),
		RunE: a.on(r, func(ctx context.Context, s *session, args []string) error {
			blob, err := a.upload(ctx, s, args[0], false)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(newBlobView(blob))
			}
			fmt.Fprintln(a.Stdout, blob.Sha256)
			return nil
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *App) dataDownload(r *remote) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "download SHA256",
		Short: "Download a data set and check it",
		Args:  cobra.ExactArgs(1),
		RunE: a.on(r, func(ctx context.Context, s *session, args []string) error {
			if len(args[0]) != 64 || strings.Trim(args[0], "0123456789abcdef") != "" {
				return badInput(errors.New("the address of a data set is 64 hex digits: see 'ulisse data list'"))
			}
			return a.output(out, func(w io.Writer) error {
				_, err := s.Download(ctx, args[0], w)
				return err
			})
		}),
	}
	c.Flags().StringVarP(&out, "out", "o", "-", "write into this `file` (- for standard output)")
	c.ValidArgsFunction = a.completion(r, func(ctx context.Context, s *session) ([]cobra.Completion, error) {
		blobs, err := s.Blobs(ctx)
		var list []cobra.Completion
		for _, b := range blobs {
			list = append(list, cobra.CompletionWithDesc(b.Sha256, bytesText(b.Size)))
		}
		return list, err
	})
	return c
}
