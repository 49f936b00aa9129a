// Command image builds the container image of ulisse without a container
// engine: one static binary, its bill of materials, and nothing else.
//
//	go run ./hack/image --arch amd64 --out ulisse-amd64.tar     docker load -i, ctr images import, crane push
//	go run ./hack/image --arch amd64,arm64 --out ulisse.tar     skopeo copy --all oci-archive:ulisse.tar docker://…
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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/version"
)

// options are the flags.
type options struct {
	arch, binaries, out, name, release, sbom string
}

func main() {
	var o options
	flag.StringVar(&o.arch, "arch", "amd64", "amd64, arm64, or both with a comma: an index of two images")
	flag.StringVar(&o.binaries, "binaries", "", "take the programs that are in this `folder`, as ulisse-linux-ARCH, in place of building them")
	flag.StringVar(&o.out, "out", "", "write the archive to this `file`")
	flag.StringVar(&o.name, "name", "ghcr.io/ulisse-gp/ulisse", "the image's name, without the tag")
	flag.StringVar(&o.release, "version", version.Version, "the image's version: its tag, its label, what 'ulisse version' says")
	flag.StringVar(&o.sbom, "sbom", "", "print the bill of materials of this `binary`, build nothing")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.sbom != "" {
		bill, err := materials(o.sbom, o.release)
		if err == nil {
			_, err = os.Stdout.Write(bill)
		}
		return err
	}
	if o.out == "" {
		return fmt.Errorf("--out says where to write the archive")
	}
	dir, err := os.MkdirTemp("", "ulisse-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var images []*image
	for _, arch := range strings.Split(o.arch, ",") {
		if !slices.Contains([]string{"amd64", "arm64"}, arch) {
			return fmt.Errorf("--arch is amd64, arm64 or both, not %q", arch)
		}
		binary := filepath.Join(o.binaries, "ulisse-linux-"+arch)
		if o.binaries == "" {
			binary = filepath.Join(dir, "ulisse-linux-"+arch)
			if err := compile(binary, arch, o.release); err != nil {
				return err
			}
		}
		im, err := assemble(binary, arch, o.release, git("rev-parse", "HEAD"), created())
		if err != nil {
			return err
		}
		images = append(images, im)
	}
	f, err := os.Create(o.out)
	if err != nil {
		return err
	}
	defer f.Close()
	digest, err := write(f, o.name+":"+o.release, images)
	if err != nil {
		return err
	}
	fmt.Printf("%s:%s %s %s\n", o.name, o.release, o.arch, digest)
	return f.Close()
}

// compile builds the binary as releases are built.
func compile(binary, arch, release string) error {
	c := exec.Command(filepath.Join("hack", "build"), binary, release)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("hack/build, from the root of the checkout: %w: %s", err, out)
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
