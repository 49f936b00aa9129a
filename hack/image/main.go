// Command image builds the container image of ulisse without a container
// engine: one static binary, its bill of materials, and nothing else.
//
//	go run ./hack/image --arch amd64 --out ulisse-amd64.tar     docker load -i, ctr images import, skopeo
//	go run ./hack/image --sbom BINARY                           only the bill of materials, to standard output
//
// The same sources give the same bytes: file times, order, owners and the
// binary's paths are fixed, and the image's date is the commit's
// (or $SOURCE_DATE_EPOCH). The Dockerfile beside go.mod builds the same image where
// there is an engine.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/version"
)

func main() {
	arch := flag.String("arch", "amd64", "amd64 or arm64")
	out := flag.String("out", "", "write the archive to this `file`")
	name := flag.String("name", "ghcr.io/ulisse-gp/ulisse", "the image's name, without the tag")
	release := flag.String("version", version.Version, "the image's version: its tag, its label, what 'ulisse version' says")
	sbom := flag.String("sbom", "", "print the bill of materials of this `binary`, build nothing")
	flag.Parse()
	if err := run(*arch, *out, *name, *release, *sbom); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(arch, out, name, release, sbom string) error {
	if sbom != "" {
		bill, err := materials(sbom, release)
		if err == nil {
			_, err = os.Stdout.Write(bill)
		}
		return err
	}
	if out == "" {
		return fmt.Errorf("--out says where to write the archive")
	}
	dir, err := os.MkdirTemp("", "ulisse-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "ulisse")
	if err := compile(binary, arch, release); err != nil {
		return err
	}
	im, err := assemble(binary, arch, release, git("rev-parse", "HEAD"), created())
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := im.write(f, name+":"+release); err != nil {
		return err
	}
	fmt.Printf("%s:%s %s sha256:%s\n", name, release, arch, im.digest())
	return f.Close()
}

// compile builds the binary, static and without paths of this machine.
func compile(binary, arch, release string) error {
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X github.com/ulisse-gp/ulisse/internal/version.Version="+release,
		"-o", binary, "github.com/ulisse-gp/ulisse/cmd/ulisse")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

// created is the date that the image bears.
func created() time.Time {
	for _, s := range []string{os.Getenv("SOURCE_DATE_EPOCH"), git("log", "-1", "--format=%ct")} {
		if sec, err := strconv.ParseInt(s, 10, 64); err == nil {
			return time.Unix(sec, 0).UTC()
		}
	}
	return time.Unix(0, 0).UTC()
}

// git returns what a command of git says, nothing outside a checkout.
func git(args ...string) string {
	var out bytes.Buffer
	c := exec.Command("git", args...)
	c.Stdout = &out
	if c.Run() != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}
