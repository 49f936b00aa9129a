package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// spdxPackage is a package of an SPDX 2.3 document.
type spdxPackage struct {
	Name             string    `json:"name"`
	ID               string    `json:"SPDXID"`
	Version          string    `json:"versionInfo"`
	DownloadLocation string    `json:"downloadLocation"`
	FilesAnalyzed    bool      `json:"filesAnalyzed"`
	License          string    `json:"licenseConcluded"`
	ExternalRefs     []spdxRef `json:"externalRefs"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// materials returns the bill of materials of a Go program, as SPDX 2.3 in JSON:
// the modules that the linker recorded in it, and the Go release.
func materials(binary, release string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	root := spdx(0, info.Main.Path, release)
	packages := []spdxPackage{root, spdx(1, "stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	relations := []spdxRelation{{"SPDXRef-DOCUMENT", "DESCRIBES", root.ID}, {root.ID, "DEPENDS_ON", packages[1].ID}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = &debug.Module{Path: m.Replace.Path, Version: m.Replace.Version}
		}
		p := spdx(len(packages), m.Path, m.Version)
		packages = append(packages, p)
		relations = append(relations, spdxRelation{root.ID, "DEPENDS_ON", p.ID})
	}
	return json.MarshalIndent(map[string]any{
		"spdxVersion":       "SPDX-2.3",
		"dataLicense":       "CC0-1.0",
		"SPDXID":            "SPDXRef-DOCUMENT",
		"name":              "ulisse-" + release,
		"documentNamespace": "https://github.com/ulisse-gp/ulisse/sbom/" + sum(program),
		"creationInfo":      map[string]any{"created": created().Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: ulisse-hack-image"}},
		"packages":          packages,
		"relationships":     relations,
	}, "", " ")
}

func spdx(i int, path, v string) spdxPackage {
	return spdxPackage{Name: path, ID: fmt.Sprint("SPDXRef-", i), Version: v, DownloadLocation: "NOASSERTION", License: "NOASSERTION",
		ExternalRefs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + v}}}
}
