// Command man writes what the commands say of themselves for a system: manual
// pages and completions of shells.
//
//	go run ./hack/man FOLDER      FOLDER/man/*.1, FOLDER/completions/{ulisse.bash,_ulisse,ulisse.fish,ulisse.ps1}
//
// The date on the pages is $SOURCE_DATE_EPOCH.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ulisse-gp/ulisse/internal/cli"
	"github.com/ulisse-gp/ulisse/internal/version"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	root := cli.NewApp().Command()
	root.DisableAutoGenTag = true
	pages, completions := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	for _, d := range []string{pages, completions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	sec, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	date := time.Unix(sec, 0).UTC()
	head := &doc.GenManHeader{Section: "1", Date: &date, Source: "ulisse " + version.Version, Manual: "ulisse"}
	if err := doc.GenManTree(root, head, pages); err != nil {
		return err
	}
	return complete(root, completions)
}

func complete(root *cobra.Command, dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := root.GenBashCompletionFileV2(in("ulisse.bash"), true); err != nil {
		return err
	}
	if err := root.GenZshCompletionFile(in("_ulisse")); err != nil {
		return err
	}
	if err := root.GenFishCompletionFile(in("ulisse.fish"), true); err != nil {
		return err
	}
	return root.GenPowerShellCompletionFileWithDesc(in("ulisse.ps1"))
}
