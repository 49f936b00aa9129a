package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/backup"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func (a *App) backupCommand(r *remote) *cobra.Command {
	var data bool
	var keep int
	c := &cobra.Command{
		Use:   "backup FILE | --data FOLDER",
		Short: "Write a consistent copy of the state into a file, or of state and data into a folder",
		Long: `Write a consistent copy of the replicated state (jobs, draws, users, records of
data) into a file, - for standard output.

With --data the copy goes into a folder, together with the data sets. Each data set is
there once: a copy every night moves only those that are new. A copy that was cut
short is none; the next one goes on with what is there.`,
		Example: `  ulisse cluster backup --data /backup --keep 14
  ulisse cluster backup state.backup`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.on(r, func(ctx context.Context, s *session, args []string) error {
		if !data {
			if keep > 0 {
				return badInput(errors.New("--keep is for copies in a folder: give --data"))
			}
			return a.backupState(ctx, s, args[0])
		}
		folder := backup.Folder(args[0])
		copied, moved, err := folder.Add(ctx, s, a.Now())
		if err != nil {
			return err
		}
		if keep > 0 {
			if err := folder.Keep(keep); err != nil {
				return fmt.Errorf("removing old backups: %w", err)
			}
		}
		fmt.Fprintf(a.Stderr, "%s: backup %s, %d data sets, %s new\n", args[0], copied.Name, len(copied.Tables), bytesText(moved))
		return nil
	})
	c.Flags().BoolVar(&data, "data", false, "copy the data sets, too, into a folder")
	c.Flags().IntVar(&keep, "keep", 0, "with --data: how many of the newest copies to keep; 0 keeps all")
	return c
}

func (a *App) backupState(ctx context.Context, s *session, path string) error {
	var size int64
	err := a.output(path, func(w io.Writer) (err error) {
		size, err = s.Backup(ctx, w)
		return err
	})
	if err == nil && path != "-" {
		err = os.Chmod(path, 0o600) // it holds the cluster's keys
	}
	if err == nil {
		fmt.Fprintf(a.Stderr, "%s: %s\n", path, bytesText(size))
	}
	return err
}

func (a *App) restoreCommand(r *remote, asJSON *bool) *cobra.Command {
	var yes, data bool
	var at string
	c := &cobra.Command{
		Use:   "restore FILE | --data FOLDER",
		Short: "Replace the state of the whole cluster by a backup, with --data also its data sets",
		Long: `Replace the state of the whole cluster by that of a backup, - for standard input.
With --data first the data sets of the folder are uploaded that the cluster lacks.
The backup is checked before anything is changed. What the cluster had is lost,
its users and tokens, too: those of the backup are valid.`,
		Example: "  ulisse cluster restore --data /backup --at 20260102T031700Z",
		Args:    cobra.ExactArgs(1),
	}
	c.RunE = a.on(r, func(ctx context.Context, s *session, args []string) error {
		restore, from, err := a.openBackup(args[0], at, data)
		if err != nil {
			return badInput(err)
		}
		if a.TTY && !yes {
			fmt.Fprintf(a.Stderr, "replace all jobs and draws of the cluster at %s by those of %s? [y/N] ", strings.Join(s.Addresses(), ", "), from)
			answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
			if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
				return &exit{ExitFailure, errors.New("nothing was done")}
			}
		}
		m, err := restore(ctx, s)
		if err != nil {
			return err
		}
		return a.printMembers(m, *asJSON)
	})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask: the state that the cluster has is lost")
	c.Flags().BoolVar(&data, "data", false, "restore from a folder, with its data sets")
	c.Flags().StringVar(&at, "at", "", "with --data: restore the copy of this `time`, the name of its files, in place of the newest")
	return c
}

// openBackup returns what restores a backup, and its name for people.
func (a *App) openBackup(path, at string, data bool) (restore func(context.Context, *session) (*pb.MembersResponse, error), name string, err error) {
	if data {
		folder := backup.Folder(path)
		copied, err := folder.Find(at)
		if err != nil {
			return nil, "", err
		}
		return func(ctx context.Context, s *session) (*pb.MembersResponse, error) {
				return folder.Restore(ctx, s, copied)
			},
			fmt.Sprintf("%s in %s", copied.Name, path), nil
	}
	if at != "" {
		return nil, "", errors.New("--at is for copies in a folder: give --data")
	}
	if path == "-" {
		return func(ctx context.Context, s *session) (*pb.MembersResponse, error) { return s.Restore(ctx, a.Stdin) }, "standard input", nil
	}
	if info, err := os.Stat(path); err != nil {
		return nil, "", fmt.Errorf("cannot read the backup: %w", err)
	} else if info.IsDir() {
		return nil, "", fmt.Errorf("%s is a folder: to restore from one give --data", path)
	}
	return func(ctx context.Context, s *session) (*pb.MembersResponse, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the backup: %w", err)
		}
		defer f.Close()
		return s.Restore(ctx, f)
	}, path, nil
}
