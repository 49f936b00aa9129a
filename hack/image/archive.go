package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"time"
)

// user runs the program: nobody that a machine knows, and not root.
const user = "65532:65532"

// image is one image of one architecture: a layer and its configuration.
type image struct {
	arch                    string
	labels                  map[string]string
	layer, config, manifest []byte
	created                 time.Time
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// labels are those that the Open Container Initiative names.
func labels(release, revision string, created time.Time) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "ulisse",
		"org.opencontainers.image.description":   "Posterior draws of exact Gaussian processes on large data",
		"org.opencontainers.image.source":        "https://github.com/ulisse-gp/ulisse",
		"org.opencontainers.image.documentation": "https://github.com/ulisse-gp/ulisse/tree/main/docs",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       release,
		"org.opencontainers.image.revision":      revision,
		"org.opencontainers.image.created":       created.Format(time.RFC3339),
	}
}

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func describe(mediaType string, b []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum(b), Size: len(b)}
}

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
)

// assemble makes the image of a binary.
func assemble(binary, arch, release, revision string, created time.Time) (*image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	bill, err := materials(binary, release)
	if err != nil {
		return nil, err
	}
	im := &image{arch: arch, labels: labels(release, revision, created), created: created}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{{"ulisse", 0o555, program}, {"sbom.spdx.json", 0o444, bill}} {
		if err := im.add(w, f.name, f.mode, f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	im.layer = layer.Bytes()
	im.config, err = json.Marshal(map[string]any{
		"architecture": arch,
		"os":           "linux",
		"created":      created.Format(time.RFC3339),
		"config": map[string]any{
			"User":       user,
			"Entrypoint": []string{"/ulisse"},
			"Labels":     im.labels,
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(im.layer)}},
		"history": []map[string]any{{"created": created.Format(time.RFC3339), "created_by": "hack/image"}},
	})
	if err != nil {
		return nil, err
	}
	im.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2,
		"mediaType":     ociManifest,
		"config":        describe("application/vnd.oci.image.config.v1+json", im.config),
		"layers":        []descriptor{describe("application/vnd.oci.image.layer.v1.tar", im.layer)},
	})
	return im, err
}

// descriptor refers to the image's manifest.
func (im *image) descriptor() descriptor {
	d := describe(ociManifest, im.manifest)
	d.Platform = map[string]string{"os": "linux", "architecture": im.arch}
	return d
}

// file is one of the archive's.
type file struct {
	name string
	data []byte
}

func blob(b []byte) file { return file{"blobs/sha256/" + sum(b), b} }

// write writes an OCI layout as one archive, and returns the digest that the tag
// stands for. One image is also in the form of 'docker save', which shares
// the blobs; several are in an index, which that form does not have.
func write(out io.Writer, tag string, images []*image) (string, error) {
	entry := images[0].descriptor()
	files := []file{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}}
	for _, im := range images {
		files = append(files, blob(im.config), blob(im.manifest), blob(im.layer))
	}
	if len(images) == 1 {
		im := images[0]
		docker, err := json.Marshal([]map[string]any{{"Config": blob(im.config).name, "RepoTags": []string{tag}, "Layers": []string{blob(im.layer).name}}})
		if err != nil {
			return "", err
		}
		files = append(files, file{"manifest.json", docker})
	} else {
		list, err := index(images)
		if err != nil {
			return "", err
		}
		entry = describe(ociIndex, list)
		files = append(files, blob(list))
	}
	entry.Annotations = map[string]string{"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag}
	top, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []descriptor{entry}})
	if err != nil {
		return "", err
	}
	w := tar.NewWriter(out)
	for _, f := range append(files, file{"index.json", top}) {
		if err := images[0].add(w, f.name, 0o444, f.data); err != nil {
			return "", err
		}
	}
	return entry.Digest, w.Close()
}

// index lists the images of one release by their machines.
func index(images []*image) ([]byte, error) {
	var list []descriptor
	for _, im := range images {
		list = append(list, im.descriptor())
	}
	return json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": list, "annotations": images[0].labels})
}

// add writes a file of root's with the image's date.
func (im *image) add(w *tar.Writer, name string, mode int64, data []byte) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: im.created, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
