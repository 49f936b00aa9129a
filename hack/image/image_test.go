package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// read returns the files of an archive.
func read(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchive builds the image of this test's own binary twice and looks at it
// as an engine would.
func TestArchive(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var archives [2]bytes.Buffer
	date := time.Unix(1_700_000_000, 0).UTC()
	for i := range archives {
		im, err := assemble(binary, "arm64", "1.2.3", "abc", date)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := write(&archives[i], "r/ulisse:1.2.3", []*image{im}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
		t.Error("two archives of one binary differ")
	}
	files := read(t, archives[0].Bytes())
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &docker); err != nil {
		t.Fatal(err)
	}
	if len(docker) != 1 || docker[0].RepoTags[0] != "r/ulisse:1.2.3" || len(docker[0].Layers) != 1 {
		t.Fatalf("%+v", docker)
	}
	for name, b := range files {
		if hash, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && sum(b) != hash {
			t.Errorf("%s has the hash %s", name, sum(b))
		}
	}
	var index, manifest struct {
		Manifests, Layers []descriptor
		Config            descriptor
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	blob := func(d descriptor) []byte { return files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")] }
	if err := json.Unmarshal(blob(index.Manifests[0]), &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Architecture string
		Config       struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(blob(manifest.Config), &config); err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.Config.User != user || config.Rootfs.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("%+v", config)
	}
	layer := read(t, blob(manifest.Layers[0]))
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if len(layer) != 2 || !bytes.Equal(layer["ulisse"], program) {
		t.Errorf("the layer holds %d files", len(layer))
	}
	var bill struct{ Packages []spdxPackage }
	if err := json.Unmarshal(layer["sbom.spdx.json"], &bill); err != nil {
		t.Fatal(err)
	}
	if bill.Packages[0].Name != "github.com/ulisse-gp/ulisse" || bill.Packages[0].Version != "1.2.3" || bill.Packages[1].Name != "stdlib" {
		t.Errorf("the bill of materials begins with %+v", bill.Packages[:2])
	}

	// The Dockerfile says the same of the image.
	file, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"FROM scratch", "USER " + user, `ENTRYPOINT ["/ulisse"]`}
	for k, v := range config.Config.Labels {
		switch k[strings.LastIndex(k, ".")+1:] {
		case "version", "revision", "created":
			v = "$" + strings.ToUpper(k[strings.LastIndex(k, ".")+1:])
		}
		want = append(want, k+`="`+v+`"`)
	}
	for _, w := range want {
		if !strings.Contains(string(file), w) {
			t.Errorf("the Dockerfile has no %s", w)
		}
	}
}

// TestIndex: an archive of two machines has each image once, under one tag.
func TestIndex(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var images []*image
	for _, arch := range []string{"amd64", "arm64"} {
		im, err := assemble(binary, arch, "1.2.3", "abc", time.Unix(1_700_000_000, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, im)
	}
	var archive bytes.Buffer
	digest, err := write(&archive, "r/ulisse:1.2.3", images)
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, archive.Bytes())
	var top, list struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != digest || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "r/ulisse:1.2.3" {
		t.Fatalf("the archive's entries: %+v", top.Manifests)
	}
	blob := func(d descriptor) []byte {
		b := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(b) != d.Size {
			t.Fatalf("%s has %d bytes, not %d", d.Digest, len(b), d.Size)
		}
		return b
	}
	if err := json.Unmarshal(blob(top.Manifests[0]), &list); err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		d := list.Manifests[i]
		var manifest struct{ Config descriptor }
		var config struct{ Architecture string }
		if err := json.Unmarshal(blob(d), &manifest); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(blob(manifest.Config), &config); err != nil {
			t.Fatal(err)
		}
		if d.Platform["architecture"] != arch || d.Platform["os"] != "linux" || config.Architecture != arch {
			t.Errorf("image %d is for %v, its configuration for %s, not %s", i, d.Platform, config.Architecture, arch)
		}
	}
}
