// Package ulissev1 is the wire: messages, services, and their form in JSON over
// HTTP. The .proto files are its documentation.
package ulissev1

import _ "embed"

// OpenAPI describes the JSON API (OpenAPI 2).
//
//go:embed ulisse.swagger.json
var OpenAPI []byte
